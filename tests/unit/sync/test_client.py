"""The client over real sockets: a good server, several servers, and servers that are busy, slow, or hostile."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

import pytest
from _patience import longest
from _processes import free_port, poll
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pubsub_lib import http_limits
from pubsub_lib.core.model import (
    AnswerAge,
    Delta,
    Full,
    Head,
    Point,
    Record,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.errors import ConfigError, StoreError, StoreUnavailable
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.sync.client import MAX_RETRY_AFTER, Busy, Misdirected, SyncClient
from pubsub_lib.sync.pages import pages_of
from pubsub_lib.sync.question import SyncQuestion, encode_question
from pubsub_lib.sync.server import ROUTE, SyncRoute
from pubsub_lib.sync.stream import packed
from pubsub_lib.sync.urls import ChannelUrl, KnownUrls, channel_urls
from tests.unit.sync.answers import plain, random_answer

LONG = longest(120.0)
WANTS, ANSWER = random_answer(Random(3), aged=False)
BODY = b"".join(packed(pages_of(ANSWER), gzip=False))


class Nothing(Collector):
    def collect(self) -> Iterable[Metric]:
        return ()


@contextmanager
def service(
    source: Callable[[SyncQuestion], SyncAnswer | None] = lambda question: ANSWER,
    places: int = 2,
    seconds: float = LONG,
    *,
    firsts: bool = False,
) -> Iterator[tuple[str, SyncRoute]]:
    """The URL of an endpoint that serves syncs, and its route."""
    route = SyncRoute(source, places, seconds, firsts=firsts)
    endpoint = Endpoint("127.0.0.1", 0, Nothing(), list, "the_port", streams={ROUTE: route})
    endpoint.start()
    try:
        yield f"http://127.0.0.1:{endpoint.port}", route
    finally:
        endpoint.close()


@contextmanager
def server(*sent: bytes, hold: bool = False, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of a program that answers each request with the next of these bytes, and then (``hold``) is silent."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        for data in sent:
            try:
                peer: socket.socket
                peer, _ = listener.accept()
            except OSError:
                return
            if tls is not None:
                try:
                    peer = tls.wrap_socket(peer, server_side=True)
                except OSError:  # the client refused the certificate
                    continue
            got = b""
            while b"\r\n\r\n" not in got and (part := peer.recv(65536)):  # a client in a hurry left
                got += part
            if not got:
                peer.close()
                continue
            peer.sendall(data)
            if hold:
                held.append(peer)
            else:
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
                peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(LONG)
        for peer in held:
            peer.close()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.0 {status}", *headers, "", ""]).encode() + body


def client(
    urls: str | KnownUrls,
    *,
    timeout: float = LONG,
    begin: float = LONG,
    max_bytes: int = 2**30,
    others: bool = False,
    max_pause: float = MAX_RETRY_AFTER,
    now: Callable[[], float] = time.monotonic,
) -> SyncClient:
    return SyncClient(
        urls, timeout=timeout, begin=begin, max_frame_bytes=2**20, max_bytes=max_bytes, others=others,
        max_pause=max_pause, now=now,
    )  # fmt: skip


def free_url() -> str:
    """A URL at which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize("aged", [False, True])
def test_client_reads_what_the_source_answers_with_its_ages(aged: bool) -> None:
    asked: list[SyncQuestion] = []
    for seed in (0, 3, 5, 7, 9):  # with objects, links, and topics of which nothing is sent
        wants, answer = random_answer(Random(seed), aged=aged)

        def source(question: SyncQuestion, answer: SyncAnswer = answer) -> SyncAnswer:
            asked.append(question)
            return answer

        with service(source) as (url, _):
            found = client(url).ask(SyncQuestion(wants, refresh=True))
            assert plain(found) == plain(answer)
            assert asked.pop() == SyncQuestion(wants, refresh=True)
            client(url).read_sync(wants)
            assert asked.pop() == SyncQuestion(wants)


def test_uncompressed_answer_of_any_server_is_read() -> None:
    with server(response(BODY)) as url:
        assert plain(client(url).read_sync(WANTS)) == plain(ANSWER)


def test_server_that_does_not_answer_is_passed_over_and_the_one_that_did_is_first_next_time() -> None:
    with service() as (url, route):
        reading = client(f"{free_url()},{url}")
        reading.read_sync(WANTS)
        assert str(reading._urls[0]) == f"{url}/sync"
        reading.read_sync(WANTS)
        assert route.counters()["answered"] == 2


def test_server_that_hangs_until_the_timeout_is_asked_last_next_time() -> None:
    with server(b"", b"", hold=True) as silent, service() as (url, _):
        reading = client(f"{silent},{url}", timeout=0.3)
        with pytest.raises(StoreUnavailable, match="it did not answer in time"):
            reading.read_sync(WANTS)
        reading._failing.clear()  # as if as much time had passed as the failure took
        reading._timeout = LONG
        assert plain(reading.read_sync(WANTS)) == plain(ANSWER)
        assert str(reading._urls[0]) == f"{url}/sync"


def test_next_server_is_asked_when_one_does_not_begin_its_answer() -> None:
    with server(b"", b"", hold=True) as silent, service() as (url, _):
        reading = client(f"{silent},{url}", begin=0.2)
        reading._slow[reading._urls[1]] = LONG  # the good server has the time that it needs
        assert plain(reading.read_sync(WANTS)) == plain(ANSWER)
        assert str(reading._urls[0]) == f"{url}/sync"


def test_answer_has_the_time_after_which_its_server_was_asked() -> None:
    with server(b"", b"", hold=True) as silent, service() as (url, _):
        reading = client(f"{silent},{url}", begin=0.2)
        reading._slow[reading._urls[1]] = LONG
        assert reading.read_sync(WANTS).asked_after >= 0.2
        asked = time.monotonic()
        assert reading.read_sync(WANTS).asked_after <= time.monotonic() - asked


def test_server_that_hung_is_not_asked_first_for_as_long_as_that_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of the other one are refused, for whatever reason: each one leads to another question."""
    now, asked = 100.0, list[str]()

    def ask(url: ChannelUrl, question: SyncQuestion, begun: float) -> SyncAnswer:
        nonlocal now
        asked.append(url.host)
        if url.host == "hangs":
            now += 6.0
            raise StoreUnavailable("it did not answer in time")
        return ANSWER

    reading = client("http://hangs:1,http://answers:1", now=lambda: now)
    monkeypatch.setattr(reading, "_ask", ask)
    for _ in range(4):
        now += 4.0
        reading.ask(SyncQuestion(WANTS, refresh=True))
    assert asked == ["hangs", "answers", "answers", "hangs", "answers", "answers"]


def test_server_of_the_parent_that_was_left_is_asked_last() -> None:
    left = [("", 0)]
    with service() as (one, first), service() as (other, second):
        reading = client(f"{one},{other}")
        reading.ask_last(lambda: left[0])
        reading.read_sync(WANTS)
        left[0] = reading._urls[0].host, reading._urls[0].port
        for _ in range(2):
            reading.ask(SyncQuestion(WANTS))
        assert (first.counters()["answered"], second.counters()["answered"]) == (1, 2)
        reading.ask(SyncQuestion(WANTS, refresh=True))
        assert (first.counters()["answered"], second.counters()["answered"]) == (2, 2), "the other one was of no use"
    with pytest.raises(StoreUnavailable):
        reading.read_sync(WANTS)


def test_server_of_first_syncs_keeps_its_place_while_another_one_answers_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, later = {"t": Want()}, {"t": Want(after=Point(1, 1))}
    asked: list[str] = []

    def ask(url: ChannelUrl, question: SyncQuestion, begun: float) -> SyncAnswer:
        asked.append(url.host)
        if url.host == "standby" and question.wants == later:
            raise Misdirected("this service answers first syncs only")
        return ANSWER

    reading = client("http://standby:1,http://origin:1")
    monkeypatch.setattr(reading, "_ask", ask)
    for wants, refresh in ((first, False), (later, False), (first, False), (later, False), (later, True)):
        reading.ask(SyncQuestion(wants, refresh))
    assert asked == ["standby", "standby", "origin", "standby", "standby", "origin", "standby", "origin"]
    assert reading._urls[0].host == "standby", "the one that was of no use is asked last"
    alone = client("http://standby:1")
    monkeypatch.setattr(alone, "_ask", ask)
    with pytest.raises(Misdirected):
        alone.read_sync(later)


def test_standby_answers_421_to_other_questions_than_first_syncs() -> None:
    with service(firsts=True) as (url, _), pytest.raises(Misdirected, match="answers 421: this service answers first"):
        client(url).read_sync({"t": Want(after=Point(1, 1))})


def test_server_that_is_known_at_the_time_of_the_question_is_asked() -> None:
    """A replica without sync_url learns the server from its parent's hellos."""
    named: list[ChannelUrl] = []

    def known() -> Sequence[ChannelUrl]:
        if not named:
            raise StoreUnavailable("the parent has named no sync channel")
        return named

    reading = client(known)
    with pytest.raises(StoreUnavailable, match="the parent has named no sync channel"):
        reading.read_sync(WANTS)
    with service() as (url, route), service() as (other, second):
        for at in (url, url, other):
            named[:] = channel_urls(at)
            assert plain(reading.read_sync(WANTS)) == plain(ANSWER)
        assert (route.counters()["answered"], second.counters()["answered"]) == (2, 1)


def test_single_server_that_hangs_is_given_up_when_others_may_be_known_later() -> None:
    with server(b"", hold=True) as silent:
        reading = client(silent, begin=0.2, others=True)
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="it did not answer in time"):
            reading.read_sync(WANTS)
        assert time.monotonic() - begun < LONG / 2


def test_slow_server_has_longer_each_time() -> None:
    """All other servers are down: it must be waited for. It begins after three times as long as is usual."""
    go = threading.Event()

    def slow(question: SyncQuestion) -> SyncAnswer:
        if go.is_set():
            time.sleep(0.6)  # it began after the question, so its answer comes after 0.2 s
        else:
            assert go.wait(LONG)
        return ANSWER

    with service(slow, places=10) as (url, _):
        reading = client(f"{url},{free_url()}", begin=0.2)
        slow_one = reading._urls[0]
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                reading.read_sync(WANTS)
        assert reading._slow[slow_one] == 0.8
        reading._slow[slow_one] = LONG  # in place of 0.8 s, in which its answer may not come
        go.set()
        assert plain(reading.read_sync(WANTS)) == plain(ANSWER)
        assert reading._slow.get(slow_one) == LONG, "it was slow this time, too"


def test_slow_server_is_not_forgotten_by_a_small_answer() -> None:
    known = Point(1, 1)
    delta = {"t": Want(after=known)}
    nothing = SyncAnswer(known, {"t": Delta([], known)})
    answers = [nothing]
    with service(lambda question: answers[-1]) as (url, _):
        reading = client(f"{url},{free_url()}")
        reading._slow[reading._urls[0]] = LONG / 2
        reading.read_sync(delta)
        assert len(reading._slow) == 1
        answers.append(ANSWER)
        reading.read_sync(WANTS)
        assert reading._slow == {}


def test_single_server_may_take_the_whole_time() -> None:
    def slow(question: SyncQuestion) -> SyncAnswer:
        threading.Event().wait(0.3)
        return ANSWER

    with service(slow) as (url, _):
        assert plain(client(url, begin=0.01).read_sync(WANTS)) == plain(ANSWER)


def test_server_whose_answer_did_not_help_is_asked_last() -> None:
    """A relay that is cut off answers all questions, and the replica refuses its old answers."""
    with service() as (one, cut_off), service() as (other, fresh):
        reading = client(f"{one},{other}")
        reading.read_sync(WANTS)
        reading.ask(SyncQuestion(WANTS, refresh=True))
        assert (cut_off.counters()["answered"], fresh.counters()["answered"]) == (1, 1)
        reading.read_sync(WANTS)
        assert (cut_off.counters()["answered"], fresh.counters()["answered"]) == (1, 2)


@pytest.mark.parametrize("aged", [False, True])
def test_relay_that_has_nothing_for_what_is_asked_again_is_asked_last(aged: bool) -> None:
    """A hello of another relay announced a change. The one that is cut off has no link, which is no failed sync."""
    known = Point(7, 77)
    ages = {"t": AnswerAge(500.0, 400.0, float("inf"))} if aged else None
    nothing = SyncAnswer(known, {"t": Delta([], known)}, ages=ages)
    with service(lambda question: nothing) as (one, cut_off), service(lambda question: nothing) as (other, fresh):
        reading = client(f"{one},{other}")
        for _ in range(2):
            reading.read_sync({"t": Want(known)})
        counts = [each.counters()["answered"] for each in (cut_off, fresh)]
        assert counts == ([1, 1] if aged else [2, 0]), "the store of a service is right, so it is asked again"
        reading.read_sync({"t": Want(Point(6, 66))})
        counts = [each.counters()["answered"] for each in (cut_off, fresh)]
        assert counts == ([1, 2] if aged else [3, 0]), "another question"


def test_servers_that_all_failed_are_asked_in_the_same_order_again() -> None:
    busy = response(b"down\n", "500 Error")
    with server(busy, busy) as one, server(busy, response(BODY)) as other:
        reading = client(f"{one},{other},{free_url()}")
        with pytest.raises(StoreUnavailable):
            reading.read_sync(WANTS)
        assert str(reading._urls[0]) == f"{one}/sync"
        assert plain(reading.ask(SyncQuestion(WANTS, refresh=True))) == plain(ANSWER)
        assert str(reading._urls[0]) == f"{other}/sync"


def test_error_of_the_only_server_names_it() -> None:
    url = free_url()
    with pytest.raises(StoreUnavailable, match=f"the sync channel {url}/sync does not answer: Connection refused"):
        client(url).read_sync(WANTS)


def test_busy_server_is_not_asked_before_the_time_that_it_named() -> None:
    now = [1000.0]
    with service(places=1) as (url, route):
        reading = client(url, now=lambda: now[0])
        with route.serve(_NoBody(), gzip=True):
            with pytest.raises(Busy, match="answers 503: all transfers of this service are in use") as caught:
                reading.read_sync(WANTS)
            assert 1 <= caught.value.seconds <= 5
            with pytest.raises(Busy, match="is busy and asks to wait for"):
                reading.read_sync(WANTS)
            assert route.counters()["busy"] == 1, "the second question was not sent"
        now[0] += caught.value.seconds
        assert plain(reading.read_sync(WANTS)) == plain(ANSWER)


class _NoBody:
    def read(self) -> bytes:
        return encode_question(SyncQuestion(WANTS))

    def skip(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("busy_first", [True, False])
@pytest.mark.parametrize(
    ("status", "words"),
    [("404 Not Found", "answers 404: no  such; the sync channel"), ("421 Misdirected Request", "")],
    ids=["a fault", "a server of other questions"],
)
def test_busy_server_sets_the_pause_beside_one_that_cannot_answer(status: str, words: str, busy_first: bool) -> None:
    with (
        server(response(b"later\n", "503 Busy", "Retry-After: 3")) as busy,
        server(response(b"no\x07 such\n", status)) as other,
        pytest.raises(Busy, match=f"{words}.* answers 503: later") as caught,
    ):
        client(f"{busy},{other}" if busy_first else f"{other},{busy}").read_sync(WANTS)
    assert caught.value.seconds == 3.0
    assert "answers 421" not in str(caught.value), "it is no fault"


def test_shortest_pause_of_busy_servers_is_used() -> None:
    with (
        server(response(b"later\n", "503 Busy", "Retry-After: 2")) as one,
        server(response(b"later\n", "503 Busy", "Retry-After: 5")) as other,
        pytest.raises(Busy) as caught,
    ):
        client(f"{one},{other}").read_sync(WANTS)
    assert caught.value.seconds == 2.0


def test_fault_of_a_server_is_raised_beside_one_of_other_questions() -> None:
    with (
        server(response(b"other\n", "421 Misdirected Request")) as one,
        server(response(b"no such\n", "404 Not Found")) as other,
        pytest.raises(StoreUnavailable, match="answers 404: no such"),
    ):
        client(f"{one},{other}").read_sync(WANTS)


@pytest.mark.parametrize(("value", "pause"), [("7", 7.0), ("999999999999", 60.0), ("0", 0.0), ("Fri, 1 Jan", None)])
def test_retry_after_is_bounded(value: str, pause: float | None) -> None:
    with server(response(b"later", "503 Busy", f"Retry-After: {value}")) as url:
        with pytest.raises(StoreUnavailable, match="answers 503: later") as caught:
            client(url).read_sync(WANTS)
        assert getattr(caught.value, "seconds", None) == pause


def test_pause_of_a_server_that_is_asked_again_soon_is_shorter() -> None:
    busy = response(b"later", "503 Busy", "Retry-After: 5")
    now = [0.0]
    with server(busy, busy) as url:
        reading = client(url, max_pause=1.0, now=lambda: now[0])
        for _ in range(2):
            with pytest.raises(Busy, match="answers 503: later") as caught:
                reading.read_sync(WANTS)
            assert caught.value.seconds == 1.0
            now[0] += 1.0


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (response(BODY[:-1]), "cut off"),
        (response(b""), "cut off"),
        (response(BODY + b"x"), "cut off in the middle of a page"),
        (response(b"\xff\xff\xff\xff"), "a page of a sync's answer has 4294967295 bytes"),
        (response(b"no gzip", "200 OK", "Content-Encoding: gzip"), "not compressed by gzip"),
        (response(b"<html>sign in</html>"), "a page of a sync's answer"),
    ],
)
def test_answer_that_cannot_be_used_is_an_error_of_the_store(sent: bytes, words: str) -> None:
    with server(sent) as url, pytest.raises(StoreError, match=words):
        client(url).read_sync(WANTS)


@pytest.mark.parametrize("sent", [b"SSH-2.0-x\r\n", b"", b"HTTP/1.0 200 OK\r\n" + b"A: b\r\n" * 200])
def test_program_without_http_is_unavailable(sent: bytes) -> None:
    with server(sent) as url, pytest.raises(StoreUnavailable, match="does not answer"):
        client(url).read_sync(WANTS)


def test_answer_above_the_bound_is_refused() -> None:
    with server(response(BODY)) as url, pytest.raises(StoreError, match="more than 1024 bytes; raise max_sync_bytes"):
        client(url, max_bytes=1024).read_sync(WANTS)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.0 200 OK\r\nA", response(BODY[:40])])
def test_silent_server_is_left_at_the_timeout(sent: bytes) -> None:
    with server(sent, hold=True) as url:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="it did not answer in time"):
            client(url, timeout=0.3).read_sync(WANTS)
        assert time.monotonic() - begun >= 0.3


def test_server_that_sends_a_byte_now_and_then_is_left_at_the_timeout() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            while not stop.wait(0.02):
                try:
                    peer.sendall(b"H")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(StoreUnavailable, match="it did not answer in time"):
            client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5).read_sync(WANTS)
    finally:
        stop.set()
        thread.join(LONG)
        listener.close()


def test_close_ends_a_running_request_and_refuses_later_ones() -> None:
    with server(b"HTTP/1.0 200 OK\r\n", hold=True) as url:
        reading = client(url)
        errors: list[Exception] = []

        def read() -> None:
            try:
                reading.read_sync(WANTS)
            except StoreUnavailable as error:
                errors.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        while reading._call is None or reading._call._peer is None:
            time.sleep(0.001)  # until the request has a connection
        reading.close()
        reading.close()
        thread.join(LONG)
        assert "closed" in str(errors[0])
        with pytest.raises(StoreUnavailable, match="the replica is closed"):
            reading.read_sync(WANTS)


@pytest.mark.parametrize("step", [0, 32 * 1024])
def test_slow_client_loses_its_place_at_the_end_of_its_time(step: int) -> None:
    """A client that takes nothing, and one that takes each part soon, but not the whole answer in its time."""
    found = [Record("table", f"key-{number}", 1, b"2" * 30_000) for number in range(800)]  # more than buffers hold
    large = SyncAnswer(Point(9, 5), {"t": Full({"t": TopicSnapshot(Head(Point(9, 5), 800, 1), found)}, Point(9, 5))})
    read = threading.Event()

    def source(question: SyncQuestion) -> SyncAnswer:
        read.set()
        return large

    with service(source, places=1, seconds=1.0) as (url, route), socket.socket() as peer:
        host, _, port = url.removeprefix("http://").partition(":")
        body = encode_question(SyncQuestion({"t": Want()}))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 16 * 1024)
        peer.connect((host, int(port)))
        head = f"POST /sync HTTP/1.0\r\nPubsub-Request: x\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall(head.encode() + body)
        assert read.wait(LONG)

        def left() -> bool:
            if step:
                peer.recv(step)
            return route.running == 0

        assert poll(left, 1.0 + http_limits.ANSWER_TIMEOUT / 2)
        # The place is free before the answer is counted.
        assert poll(lambda: (route.counters()["answered"], route.counters()["failed"]) == (0, 1), LONG)


def test_invalid_url_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="names neither http nor https"):
        client("10.0.0.1:8867")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *names]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


def test_https_is_read_from_a_server_with_a_certificate_of_the_system(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with server(response(BODY), response(BODY), tls=context) as url:
        encrypted = url.replace("http:", "https:")
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            client(encrypted).read_sync(WANTS)
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
        assert plain(client(encrypted).read_sync(WANTS)) == plain(ANSWER)
