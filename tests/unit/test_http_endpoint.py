"""The endpoint for metrics and readiness, over real HTTP."""

import http.client
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator

import pytest
from _processes import poll
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib.errors import ClosedError, ConfigError, TransportError
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.http_limits import KEPT_FOR_READY, MAX_CONNECTIONS, is_own_host
from pubsub_lib.http_routes import POST_HEADER, Answered, Query
from pubsub_lib.http_server import TEXT

problems: list[str] = []


class One(Collector):
    def collect(self) -> Iterable[Metric]:
        if problems == ["closed"]:
            raise ClosedError("this replica is closed; make a new one")
        if problems == ["a bug"]:
            raise KeyError("a bug")
        yield GaugeMetricFamily("one", "One.", value=1)


def made(port: int = 0, address: str = "127.0.0.1") -> Endpoint:
    return Endpoint(address, port, One(), lambda: problems, "the_port")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    problems.clear()
    endpoint = made()
    endpoint.start()
    yield endpoint
    endpoint.close()


def get(endpoint: Endpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_returns_the_collected_metrics(endpoint: Endpoint) -> None:
    status, text = get(endpoint, "/metrics")
    assert (status, text.splitlines()[-1]) == (200, "one 1.0")


def test_ready_returns_the_problems(endpoint: Endpoint) -> None:
    assert get(endpoint, "/ready") == (200, "ready\n")
    problems.append("the changelog is not being followed")
    assert get(endpoint, "/ready?verbose") == (503, "the changelog is not being followed\n")


def test_a_closing_program_answers_503(endpoint: Endpoint) -> None:
    problems.append("closed")
    assert get(endpoint, "/metrics") == (503, "this replica is closed; make a new one\n")


def test_an_internal_error_is_answered_and_logged(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    problems.append("a bug")
    assert get(endpoint, "/metrics") == (500, "internal error; see the program's log\n")
    (record,) = caplog.records
    assert record.message == "the endpoint for metrics cannot answer GET /metrics; please report this"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


@pytest.mark.parametrize(("error", "logged"), [(ConnectionResetError(), 0), (TimeoutError(), 0), (KeyError(), 1)])
def test_disconnects_and_timeouts_of_clients_are_not_logged(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, error: Exception, logged: int
) -> None:
    assert endpoint._server is not None
    try:
        raise error
    except type(error):
        endpoint._server.handle_error(None, ("127.0.0.1", 1))
    assert len(caplog.records) == logged


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_addresses_of_this_host_are_recognized(address: str, own: bool) -> None:
    assert is_own_host(address) is own


@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_endpoint_binds_an_ipv6_address(address: str) -> None:
    problems.clear()
    endpoint = made(address=address)
    endpoint.start()
    try:
        with urllib.request.urlopen(f"http://[::1]:{endpoint.port}/ready", timeout=60) as answer:
            assert answer.status == 200
    finally:
        endpoint.close()


def test_unknown_paths_get_404(endpoint: Endpoint) -> None:
    assert get(endpoint, "/") == (404, "use one of GET /metrics, GET /ready\n")


def test_post_from_another_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def route(query: Query) -> Answered:
        done.append(str(query))
        return 200, b"done\n", TEXT

    endpoint = Endpoint("127.0.0.1", 0, One(), lambda: problems, "the_port", {"POST /do": route})
    endpoint.start()
    try:
        url = f"http://127.0.0.1:{endpoint.port}/do?it=now"
        post = urllib.request.Request(url, headers={POST_HEADER: "1"}, method="POST")
        with urllib.request.urlopen(post, timeout=60) as answer:
            assert answer.status == 200
        # The same as from another host, which this test does not have.
        monkeypatch.setattr("ipaddress.IPv4Address.is_loopback", False)
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(post, timeout=60)
        refused.value.close()
    finally:
        endpoint.close()
    assert done == ["{'it': ['now']}"]


def test_connections_beyond_the_maximum_end_the_oldest_that_is_kept_for_ready(endpoint: Endpoint) -> None:
    held = [socket.create_connection(("127.0.0.1", endpoint.port), 10) for _ in range(MAX_CONNECTIONS)]
    try:
        # Connections are accepted in order, so each of the others has its thread when this one is accepted.
        with socket.create_connection(("127.0.0.1", endpoint.port), 10) as more:
            assert held[MAX_CONNECTIONS - KEPT_FOR_READY].recv(1) == b""
            assert more.recv(1) == b"", "it has less time than an ordinary one"
    finally:
        for each in held:
            each.close()

    def free() -> bool:
        try:
            return get(endpoint, "/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    assert poll(free, 10.0), "threads are not free again"


def test_further_routes_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.http_endpoint.ROUTE_TIMEOUT", 0.05)
    inside, go_on = threading.Event(), threading.Event()

    def route(query: Query) -> Answered:
        inside.set()
        go_on.wait(30)
        return 200, b"done\n", TEXT

    endpoint = Endpoint("127.0.0.1", 0, One(), list, "the_port", {"GET /count": route, "GET /more": route})
    endpoint.start()
    first: list[tuple[int, str]] = []
    asking = threading.Thread(target=lambda: first.append(get(endpoint, "/count")))
    try:
        asking.start()
        assert inside.wait(10)
        assert get(endpoint, "/more") == (503, "another request is in progress; try again\n")
        assert get(endpoint, "/ready") == (200, "ready\n")
    finally:
        go_on.set()
        asking.join(10)
        endpoint.close()
    assert first == [(200, "done\n")]


def test_start_does_not_look_up_the_hosts_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object) -> str:
        raise AssertionError("a name server may be unavailable")

    monkeypatch.setattr(socket, "getfqdn", look_up)
    endpoint = made()
    endpoint.start()
    endpoint.close()


def test_error_for_a_used_port_names_port_and_holder(endpoint: Endpoint) -> None:
    sentence = rf"127\.0\.0\.1:{endpoint.port} .*held by process {os.getpid()} .*set the_port"
    with pytest.raises(TransportError, match=sentence):
        made(endpoint.port).start()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "", "metrics.example"])
def test_endpoint_that_others_can_reach_is_refused_without_insecure(address: str) -> None:
    with pytest.raises(ConfigError, match=r"\(the_address\), and there are no keys"):
        made(address=address)


def test_each_start_of_an_exposed_endpoint_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2):
        endpoint = Endpoint("0.0.0.0", 0, One(), lambda: problems, "the_port", insecure=True)
        assert caplog.text.count("others can reach http://0.0.0.0:0") == number - 1
        endpoint.start()
        endpoint.close()
        assert caplog.text.count("others can reach http://0.0.0.0:0") == number


def test_error_for_an_invalid_address_names_it() -> None:
    with pytest.raises(TransportError, match="no such host"):
        Endpoint("no such host", 1, One(), lambda: problems, "the_port", insecure=True).start()


def test_close_releases_the_port_and_is_allowed_before_start() -> None:
    made().close()
    first = made()
    first.start()
    port = first.port
    first.close()
    first.close()
    second = made(port)
    second.start()
    assert get(second, "/ready")[0] in (200, 503)
    second.close()


def test_start_after_close_is_refused() -> None:
    endpoint = made()
    endpoint.close()
    with pytest.raises(ClosedError):
        endpoint.start()
    assert endpoint.port == 0


def test_start_without_a_thread_binds_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    endpoint = made()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(TransportError, match="cannot start the thread 'pubsub-metrics'"):
            endpoint.start()
    assert endpoint.port == 0
    endpoint.close()
