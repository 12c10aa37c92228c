"""Attacks on an HTTP endpoint, over real sockets: slow and many clients, foreign names, web pages, large requests."""

import contextlib
import errno
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import pytest
from _processes import poll
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib import http_endpoint, http_limits, http_server
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.http_limits import KEPT_FOR_READY, MAX_CONNECTIONS, MAX_REQUEST_BYTES
from pubsub_lib.http_routes import POST_HEADER, Answered, Body, Query, Streamed
from pubsub_lib.http_server import TEXT, Server


class One(Collector):
    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("one", "One.", value=1)


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def endpoint(calls: list[str]) -> Iterator[Endpoint]:
    def resync(query: Query) -> Answered:
        calls.append("resync")
        return 200, b"done\n", TEXT

    def verify(query: Query) -> Answered:
        calls.append("verify")
        time.sleep(0.2)
        return 200, b"counted\n", TEXT

    routes = {"POST /resync": resync, "GET /verify": verify}
    endpoint = Endpoint("127.0.0.1", 0, One(), list, "the_port", routes, hosts=("replica-1.example",))
    endpoint.start()
    yield endpoint
    endpoint.close()


def ask(endpoint: Endpoint, target: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """One request; ``Host_`` in place of Host, because http.client sends its own."""
    client = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)
    try:
        client.putrequest(method, target, skip_host="Host" in headers)
        for name, value in headers.items():
            client.putheader(name.replace("_", "-"), value)
        client.endheaders()
        answer = client.getresponse()
        return answer.status, answer.read().decode()
    finally:
        client.close()


def connected(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), 10)


PAUSE = 0.002
"""Seconds between the begin of a connection and its request, from which on the endpoint may take it for a slow one."""


def ready_status(port: int) -> int | None:
    """The status of ``/ready`` at this port of this host. None for a connection that was ended without an answer, when
    this program paused before it sent its request: with four newer connections, a supervisor that pauses looks like a
    slow client.
    """
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        answer = b""
        client.settimeout(30)
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
        sent = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while part := client.recv(4096):
                answer += part
    if not answer and sent - begin >= PAUSE:
        return None
    assert answer, f"no answer to a request that was sent {sent - begin:.4f} s after the begin"
    return int(answer.split()[1])


def test_slow_clients_do_not_silence_ready(endpoint: Endpoint) -> None:
    """40 clients that send a byte now and then, and connect again when they are cut off: a slow-loris attack."""
    stop = threading.Event()
    slow: list[socket.socket] = []

    def attack() -> None:
        while not stop.is_set():
            while len(slow) < MAX_CONNECTIONS + 8:
                slow.append(connected(endpoint))
                slow[-1].sendall(b"GET /ready HTTP/1.1\r\nX: ")
            for each in list(slow):
                try:
                    each.sendall(b"x")
                except OSError:
                    slow.remove(each)
                    each.close()
            stop.wait(0.2)

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        time.sleep(1.0)
        begin = time.monotonic()
        answers: list[int | None] = []
        while time.monotonic() < begin + 7.0:  # longer than the deadline of a request
            answers.append(ready_status(endpoint.port))
            time.sleep(0.25)
        assert answers.count(200) > 10
        assert set(answers) <= {200, None}
    finally:
        stop.set()
        attacker.join(10)
        for each in slow:
            each.close()


def test_request_has_a_deadline_however_often_a_byte_arrives(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_TIMEOUT", 1.0)
    begin = time.monotonic()
    with connected(endpoint) as slow:
        slow.sendall(b"GET /ready HTTP/1.1\r\nX: ")
        slow.settimeout(0.05)
        while True:
            try:
                slow.sendall(b"x")
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert 0.9 <= time.monotonic() - begin < 5.0


def test_kept_connections_serve_ready_only(endpoint: Endpoint) -> None:
    held = [connected(endpoint) for _ in range(MAX_CONNECTIONS - KEPT_FOR_READY)]
    try:
        assert ask(endpoint, "/ready") == (200, "ready\n")
        assert ask(endpoint, "/metrics") == (503, "all connections are in use; try again\n")
    finally:
        for each in held:
            each.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:1", "LOCALHOST.:8868", "replica-1.example:8868"])
def test_host_of_the_endpoint_is_accepted(endpoint: Endpoint, host: str) -> None:
    assert ask(endpoint, "/ready", Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8868", "192.0.2.7", "127.0.0.1.evil.example", "", "[]"])
def test_foreign_host_is_refused(endpoint: Endpoint, host: str, calls: list[str]) -> None:
    """DNS rebinding: a web page reads this host by a name of its own."""
    for target in ("/ready", "/metrics", "/verify"):
        assert ask(endpoint, target, Host=host)[0] == 403
    assert ask(endpoint, "/resync", "POST", Host=host, **{POST_HEADER: "1"})[0] == 403
    assert calls == []


def test_two_hosts_are_refused_and_none_is_accepted(endpoint: Endpoint) -> None:
    for lines, status in ((b"Host: localhost\r\nHost: localhost\r\n", b"403"), (b"", b"200")):
        with connected(endpoint) as client:
            client.sendall(b"GET /ready HTTP/1.0\r\n" + lines + b"\r\n")
            assert client.recv(100).split(b" ")[1] == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "application/x-www-form-urlencoded", "Content_Length": "0"},
        {"Content_Type": "text/plain", "Content_Length": "0", "Origin": "http://evil.example"},
        {"Content_Type": "multipart/form-data", "Content_Length": "0"},
    ],
)
def test_post_that_a_web_page_can_send_is_refused(
    endpoint: Endpoint, headers: dict[str, str], calls: list[str]
) -> None:
    status, text = ask(endpoint, "/resync", "POST", **headers)
    assert (status, text) == (403, f"a POST request needs the header {POST_HEADER}, with any value\n")
    assert calls == []


def test_no_other_site_gets_the_permission_to_send_the_header(endpoint: Endpoint) -> None:
    assert ask(endpoint, "/resync", "OPTIONS", Origin="http://evil.example")[0] == 501


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Length": "2000"},
        {"Content_Length": "99999999999999999999"},
        {"Content_Length": "-1"},
        {"Content_Length": "x"},
        {"Transfer_Encoding": "chunked"},
    ],
)
def test_body_is_limited(endpoint: Endpoint, headers: dict[str, str], calls: list[str]) -> None:
    assert ask(endpoint, "/resync", "POST", **headers, **{POST_HEADER: "1"})[0] == 413
    assert calls == []


def test_small_body_is_ignored(endpoint: Endpoint) -> None:
    with connected(endpoint) as client:
        client.sendall(f"POST /resync HTTP/1.1\r\nHost: localhost\r\n{POST_HEADER}: 1\r\n".encode())
        client.sendall(b"Content-Length: 5\r\n\r\nhello")
        assert client.recv(100).split(b" ")[1] == b"200"


@pytest.mark.parametrize("line", [b"GET /ready HTTP/1.1\r\nX: " + b"x" * 70_000, b"GET /" + b"x" * 70_000])
def test_large_request_is_cut_off(endpoint: Endpoint, line: bytes) -> None:
    with connected(endpoint) as client:
        begin = time.monotonic()
        try:
            client.sendall(line)
            answer = client.recv(100)
        except ConnectionError:
            answer = b""  # the endpoint closed the connection before all was sent
        assert answer == b"" or answer.split(b" ")[1] in (b"431", b"414")
        assert time.monotonic() - begin < 4.0, "cut off at the limit and not at the deadline"
    assert ask(endpoint, "/ready")[0] == 200


def test_large_request_line_is_answered_and_not_logged(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    with connected(endpoint) as client:
        client.sendall(b"GET /" + b"x" * (MAX_REQUEST_BYTES - 5))  # all is received, so the answer is not lost
        assert client.recv(100).split(b" ")[1] == b"431"
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_resync_is_backed_off(endpoint: Endpoint, calls: list[str]) -> None:
    begin = time.monotonic()
    codes = []
    while time.monotonic() < begin + 4.0:
        codes.append(ask(endpoint, "/resync", "POST", **{POST_HEADER: "1"})[0])
    assert codes.count(429) > 5, "most requests were too early, however slow this machine is"
    assert set(codes) == {200, 429}
    assert codes.count(200) == len(calls) <= 3, "after 0, 1 and 3 s"


def test_pause_is_stated(endpoint: Endpoint) -> None:
    headers = {POST_HEADER: "1"}
    assert ask(endpoint, "/resync", "POST", **headers)[0] == 200
    client = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)
    client.request("POST", "/resync", headers=headers)
    answer = client.getresponse()
    assert answer.status == 429
    assert answer.headers["Retry-After"] == "1"
    assert answer.read().startswith(b"this request was served just now; try again in ")
    client.close()


def test_verify_takes_a_fifth_of_the_time_at_most(endpoint: Endpoint, calls: list[str]) -> None:
    begin = time.monotonic()
    while time.monotonic() < begin + 3.0:
        assert ask(endpoint, "/verify")[0] in (200, 429)
        assert ask(endpoint, "/ready")[0] == 200
    assert 2 <= len(calls) <= 4, "0.2 s of work, then 0.8 s of pause"


def test_short_pause_is_waited_for(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "SHORT_PAUSE", 20.0)
    assert [ask(endpoint, "/verify")[0] for _ in range(3)] == [200] * 3


class Echo:
    """A route that streams its body back, twice."""

    max_body_bytes = 50_000
    max_seconds = 60.0

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.busy = False
        self.received: Callable[[Body], bytes] = lambda body: body.read()

    @contextmanager
    def serve(self, body: Body, *, gzip: bool) -> Iterator[Streamed]:
        if self.busy:
            body.skip()
            yield Streamed(503, TEXT, iter([b"busy"]), {"Retry-After": "3"})
            return
        data = self.received(body)
        self.bodies.append(len(data))
        yield Streamed(200, TEXT, iter([data, data]), {"X-Gzip": str(gzip)})


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def streaming(echo: Echo) -> Iterator[Endpoint]:
    endpoint = Endpoint("127.0.0.1", 0, One(), list, "the_port", streams={"POST /sync": echo})
    endpoint.start()
    yield endpoint
    endpoint.close()


def post(endpoint: Endpoint, body: bytes, **headers: str) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)
    try:
        client.request("POST", "/sync", body, {POST_HEADER: "x", **headers})
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


@pytest.mark.parametrize("size", [0, 1, MAX_REQUEST_BYTES + 5, 50_000])
def test_body_of_a_streaming_route_may_be_larger_than_a_request(streaming: Endpoint, echo: Echo, size: int) -> None:
    assert post(streaming, b"x" * size) == (200, b"x" * 2 * size)
    assert echo.bodies == [size]


def test_body_above_the_bound_of_its_route_is_not_received(streaming: Endpoint, echo: Echo) -> None:
    assert ask(streaming, "/sync", "POST", Pubsub_Request="x", Content_Length="50001")[0] == 413
    assert ask(streaming, "/sync", "POST", Pubsub_Request="x", Transfer_Encoding="chunked")[0] == 413
    assert echo.bodies == []


def test_streaming_route_is_open_to_other_hosts_but_to_no_web_page(
    streaming: Endpoint, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "is_own_host", lambda peer: False)
    assert post(streaming, b"x")[0] == 200
    assert post(streaming, b"x" * 40_000, Host="evil.example")[0] == 403
    status, text = ask(streaming, "/sync", "POST", Content_Length="0")
    assert (status, "needs the header Pubsub-Request" in text) == (403, True)
    assert echo.bodies == [1]


def test_streaming_route_has_one_method_and_is_named(streaming: Endpoint) -> None:
    assert ask(streaming, "/sync") == (405, "use one of GET /metrics, GET /ready, POST /sync\n")


@pytest.mark.parametrize("size", [1, 100_000])
def test_path_that_is_not_served_gets_404_from_any_host_and_with_any_body(
    endpoint: Endpoint, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica whose service has no sync channel learns that, and not that it is the wrong host."""
    monkeypatch.setattr(http_limits, "is_own_host", lambda peer: False)
    served = b"use one of GET /metrics, GET /ready, GET /verify, POST /resync\n"
    assert post(endpoint, b"x" * size) == (404, served)
    assert post(endpoint, b"x" * size, Host="evil.example")[0] == 403
    assert ask(endpoint, "/verify", "POST", Pubsub_Request="x") == (405, served.decode())
    assert ask(endpoint, "/sync", "POST", Pubsub_Request="x", Content_Length="999999999") == (404, served.decode())


def test_refusal_of_a_large_body_is_read_by_its_client(streaming: Endpoint, echo: Echo) -> None:
    """The body is received first; otherwise the system would drop the answer with the connection."""
    echo.busy = True
    assert {post(streaming, b"x" * 50_000) for _ in range(20)} == {(503, b"busy")}


def test_body_that_ends_too_early_is_not_used(streaming: Endpoint, echo: Echo) -> None:
    with connected(streaming) as peer:
        peer.sendall(b"POST /sync HTTP/1.0\r\nPubsub-Request: x\r\nContent-Length: 10\r\n\r\nfew")
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1000) == b""
    assert echo.bodies == []


def test_streamed_answer_ends_at_its_time(streaming: Endpoint, echo: Echo) -> None:
    echo.max_seconds = -1.0
    with pytest.raises(http.client.BadStatusLine):
        post(streaming, b"x")


def test_body_and_answer_of_a_streaming_route_have_one_deadline(
    streaming: Endpoint, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source needs all of the time, for example."""
    passed = [0.0]
    monkeypatch.setattr(http_server, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))
    assert post(streaming, b"x") == (200, b"xx")
    received = echo.received

    def slow(body: Body) -> bytes:
        passed[0] += echo.max_seconds
        return received(body)

    echo.received = slow
    with pytest.raises(http.client.BadStatusLine):
        post(streaming, b"x")


def test_body_of_a_streaming_route_must_arrive_in_the_time_of_the_route(
    streaming: Endpoint, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_TIMEOUT", 60.0)
    echo.max_seconds = 1.0
    with connected(streaming) as peer:
        begin = time.monotonic()
        peer.sendall(HEADERS_OF_A_BODY)
        seconds_until_the_end(peer)
        assert 1.0 <= time.monotonic() - begin < 30.0
    assert echo.bodies == []


def test_busy_endpoint_names_a_pause_to_a_streaming_route(streaming: Endpoint, echo: Echo) -> None:
    """Else the replicas of a herd double their waits."""
    held = [connected(streaming) for _ in range(MAX_CONNECTIONS - KEPT_FOR_READY)]
    try:
        with connected(streaming) as peer:
            peer.sendall(b"POST /sync HTTP/1.0\r\nPubsub-Request: x\r\nContent-Length: 3\r\n\r\nabc")
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            assert (answer.status, answer.read()) == (503, b"all connections are in use; try again\n")
            assert 1 <= int(answer.headers["Retry-After"]) <= http_limits.BUSY_PAUSE
    finally:
        for each in held:
            each.close()
    assert echo.bodies == []


def test_many_clients_that_connect_at_once_wait_for_their_turn() -> None:
    """Above the backlog, the system drops the first packet of a connection, and the client waits for a second."""
    server = Server(("127.0.0.1", 0), {}, ())
    with contextlib.closing(server.socket), contextlib.ExitStack() as opened:
        for _ in range(100):  # nothing is accepted meanwhile
            opened.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 0.5))


def test_endpoint_without_a_free_descriptor_pauses_and_answers_again(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = []
    with monkeypatch.context() as patched:

        def accept(listener: socket.socket) -> tuple[socket.socket, object]:
            attempts.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")

        patched.setattr(socket.socket, "accept", accept)
        waiting = connected(endpoint)
        assert poll(lambda: len(attempts) >= 3, 60)
        pauses = [two - one for one, two in pairwise(list(attempts))]
        assert min(pauses) >= http_limits.ACCEPT_PAUSE, "the listener stays readable meanwhile"
    with waiting:
        waiting.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
        assert waiting.recv(100).split(b" ")[1] == b"200"
    (record,) = caplog.records
    assert record.getMessage() == (
        "the endpoint for metrics cannot accept connections (Too many open files); raise the limit of open files"
    )


def test_endpoint_without_a_free_descriptor_closes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "ACCEPT_PAUSE", 60.0)
    attempted = threading.Event()

    def accept(listener: socket.socket) -> tuple[socket.socket, object]:
        attempted.set()
        raise OSError(errno.ENFILE, "Too many open files in system")

    monkeypatch.setattr(socket.socket, "accept", accept)
    endpoint = Endpoint("127.0.0.1", 0, One(), list, "the_port")
    endpoint.start()
    try:
        with connected(endpoint):
            assert attempted.wait(10)
            begin = time.monotonic()
            endpoint.close()
            assert time.monotonic() - begin < 10
    finally:
        endpoint.close()


def seconds_until_the_end(peer: socket.socket) -> float:
    """Send a byte now and then until the connection ends."""
    begin = time.monotonic()
    peer.settimeout(0.1)
    while True:
        try:
            peer.sendall(b"x")
            if not peer.recv(1):
                return time.monotonic() - begin
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - begin


HEADERS_OF_A_BODY = b"POST /sync HTTP/1.0\r\nPubsub-Request: x\r\nContent-Length: 50000\r\n\r\n"


def test_connection_for_ready_gets_no_further_time_for_a_body(
    streaming: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_TIMEOUT", 60.0)
    with contextlib.ExitStack() as opened:
        for _ in range(MAX_CONNECTIONS - KEPT_FOR_READY):
            opened.enter_context(connected(streaming))
        begin = time.monotonic()
        peer = opened.enter_context(connected(streaming))
        peer.sendall(HEADERS_OF_A_BODY)
        seconds_until_the_end(peer)
        assert 0.5 < time.monotonic() - begin < http_limits.READY_TIMEOUT + 1.5


def test_body_of_a_streaming_route_has_a_deadline_of_its_own(
    streaming: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_TIMEOUT", 4.0)
    with connected(streaming) as peer:
        time.sleep(1.0)
        begin = time.monotonic()
        peer.sendall(HEADERS_OF_A_BODY)
        seconds_until_the_end(peer)
        assert 4.0 <= time.monotonic() - begin < 6.0
