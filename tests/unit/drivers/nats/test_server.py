"""The NATS driver with a private server: access, limits, foreign messages, a server that stalls."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _broker import NatsServer
from _patience import longest
from _processes import free_port, poll

from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Change, Link, Point
from pubsub_lib.errors import TransportError
from pubsub_nats.driver import NatsDriver
from pubsub_nats.publisher import NatsPublisher
from pubsub_nats.subscriber import NatsSubscriber
from tests.conformance.nats_wire import RawNats, server

LONG = longest(30.0)
ROOM = 2.0
"""Seconds for a busy machine."""
WHO = "ab" * 16


def settings(url: str, limits: Limits = Limits(), **options: Any) -> DriverSettings:  # noqa: B008 - frozen
    given = {"servers": (url,), "reconnect_interval": 0.02, "max_reconnect_interval": 0.1, **options}
    return DriverSettings(limits=limits, options=given)


def envelope(sequence: int = 1, value: bytes = b"1", topic: str = "a") -> Envelope:
    before = Point(sequence - 1, 7) if sequence > 1 else ZERO
    link = Link(topic, before, Point(sequence, 7), [Change("t", "k", "set", sequence, value)], 1, 0, ZERO, 1)
    return Envelope("nats", WHO, topic, sequence, [Message(link)])


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a closing publisher linger until it has sent everything, also on a busy machine."""
    monkeypatch.setattr("pubsub_nats.publisher._LINGER", LONG)
    monkeypatch.setattr("pubsub_nats.publisher._STOP", LONG)


class Listener:
    def __init__(self, settings: DriverSettings, *topics: str) -> None:
        self.sequences: list[int] = []
        self.connected = threading.Event()
        made = NatsDriver.subscriber(settings)
        assert isinstance(made, NatsSubscriber)
        self.subscriber = made
        made.initialize(lambda received: self.sequences.append(received.sequence), self.connected.set)
        for topic in topics:
            made.register_topic(topic)
        made.daemonize()

    def until_connected(self) -> None:
        assert self.connected.wait(LONG)
        self.connected.clear()


@contextmanager
def listening(settings: DriverSettings, *topics: str) -> Iterator[Listener]:
    listener = Listener(settings, *topics)
    try:
        listener.until_connected()
        yield listener
    finally:
        listener.subscriber.close()


@contextmanager
def publishing(settings: DriverSettings, asked: list[HelloRequest] | None = None) -> Iterator[NatsPublisher]:
    made = NatsDriver.publisher(settings)
    assert isinstance(made, NatsPublisher)
    try:
        made.initialize((asked if asked is not None else []).append, lambda: None)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[NatsServer]:
    with server() as made:
        yield made


def test_the_largest_frame_of_the_default_limits_passes_the_default_server(shared: NatsServer) -> None:
    limit = Limits().max_frame_bytes
    room = limit - len(codec.encode(envelope())[1])
    largest = envelope(value=b"1" * (room + 1 - 4))  # a long value's header has 4 bytes more
    while len(codec.encode(largest)[1]) < limit:
        largest = envelope(value=b"1" * (len(largest.messages[0].link.changes[0].value or b"") + 1))
    assert len(codec.encode(largest)[1]) == limit
    with listening(settings(shared.url), "a") as listener, publishing(settings(shared.url)) as publisher:
        publisher.send_event(largest)
        assert poll(lambda: listener.sequences == [1], LONG)


def test_a_server_that_accepts_less_than_a_frame_is_refused_with_both_numbers() -> None:
    with server("max_payload: 65536\n") as small:
        with (
            pytest.raises(TransportError, match=r"65536 bytes.*max_frame_bytes \(1048576\)"),
            publishing(settings(small.url)),
        ):
            pass
        enough = Limits(max_frame_bytes=65536, max_value_bytes=1000)
        with publishing(settings(small.url, enough)) as publisher:
            publisher.send_event(envelope())


def test_an_unavailable_server_is_one_sentence_in_time() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with (
        pytest.raises(TransportError, match=rf"NATS server {url} is unavailable: .*correct servers in \[pubsub_nats\]"),
        publishing(settings(url, connect_timeout=2.5)),
    ):
        pass
    assert time.monotonic() - began < 5


def test_wrong_credentials_are_refused_at_once_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    with server("authorization { user: net, password: right }\n") as guarded:
        right = settings(guarded.url, user="net", password="right")
        wrong = settings(guarded.url, user="net", password="wrong-1", connect_timeout=longest(20.0))
        began = time.monotonic()
        with (
            pytest.raises(TransportError, match=r"refuses the user 'net'.*correct user, password") as caught,
            publishing(wrong),
        ):
            pass
        assert time.monotonic() - began < longest(10.0)
        listener = Listener(wrong, "a")
        assert poll(lambda: "refuses the user" in listener.subscriber._connection.reason, LONG)
        listener.subscriber.close()
        assert "wrong-1" not in f"{caught.value}{caplog.text}"
        with listening(right, "a") as listener, publishing(right) as publisher:
            publisher.send_event(envelope())
            assert poll(lambda: listener.sequences == [1], LONG)


@contextmanager
def refusing_ports(number: int) -> Iterator[list[str]]:
    """Addresses at which nothing listens, and which no other program gets."""
    with ExitStack() as ending:
        sockets = [ending.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        yield [f"nats://127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def order_of_servers(monkeypatch: pytest.MonkeyPatch, *, turns: bool) -> list[tuple[str, ...]]:
    """Lets connections try the servers in the order of the options, or, if it ``turns``, in both orders by turns.
    Returns the list of the rounds."""
    rounds: list[tuple[str, ...]] = []

    def sample(servers: tuple[str, ...], number: int) -> list[str]:
        assert number == len(servers)
        rounds.append(servers)
        return list(servers if not turns or len(rounds) % 2 else reversed(servers))

    monkeypatch.setattr("pubsub_nats.connection.random", SimpleNamespace(sample=sample))
    return rounds


def test_an_outage_is_logged_once_for_each_server(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = order_of_servers(monkeypatch, turns=True)
    with server() as broker, refusing_ports(1) as others:
        urls = (broker.url, *others)

        def outage() -> None:
            caplog.clear()
            several = len(rounds) + 4
            broker.kill()
            assert poll(lambda: len(rounds) > several, LONG)
            for line in ("was lost", *(f"{url} is unavailable" for url in urls)):
                assert caplog.text.count(line) == 1, caplog.text

        with listening(settings("", servers=urls), "a") as listener:
            outage()
            broker.restart()
            listener.until_connected()
            outage()


def test_refused_user_is_the_reason_although_another_server_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    order_of_servers(monkeypatch, turns=False)
    with server("authorization { user: net, password: right }\n") as guarded, refusing_ports(1) as others:
        wrong = settings("", servers=(guarded.url, *others), user="net", password="wrong", connect_timeout=LONG)
        with pytest.raises(TransportError, match="refuses the user 'net'"), publishing(wrong):
            pass


def test_a_topic_beside_everything_is_delivered_once(shared: NatsServer) -> None:
    with listening(settings(shared.url), "a", "") as listener, publishing(settings(shared.url)) as publisher:
        publisher.send_event(envelope(1))
        assert poll(lambda: listener.sequences[:1] == [1], LONG)  # else both may share a frame
        listener.subscriber.unregister_topic("a")
        listener.subscriber.register_topic("a")
        publisher.send_event(envelope(2))
        # The server sends all copies of a message before the next message.
        assert poll(lambda: listener.sequences[-1:] == [2], LONG)
        assert listener.sequences == [1, 2]


def test_a_subject_that_the_server_refuses_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    rights = "permissions: {publish: 'pubsub.>', subscribe: ['pubsub.hello', 'pubsub.reply.>']}"
    with server(f"authorization {{ users: [{{user: a, password: b, {rights}}}] }}\n") as guarded:
        with listening(settings(guarded.url, user="a", password="b"), "secret") as listener:
            assert poll(lambda: "refuses a subject" in caplog.text, LONG)
            listener.subscriber.register_topic("secret")
        assert caplog.text.count("pubsub.data.secret") == 1


def test_foreign_messages_are_counted_and_do_not_end_receiving(shared: NatsServer) -> None:
    raw = RawNats(shared.port)
    try:
        with listening(settings(shared.url), "") as listener, publishing(settings(shared.url)) as publisher:
            for subject in (b"pubsub.data.\xff", b"pubsub.data.%41", b"pubsub.data.a.b"):
                raw.publish(subject, b"x")
            raw.publish(b"pubsub.data.a", b"x", headers=b"NATS/1.0\r\n\r\n")
            raw.publish(b"pubsub.data.a", b"x", headers=b"NATS/1.0")
            raw.publish(b"pubsub.ask", b"x")
            publisher.send_event(envelope())
            assert poll(lambda: listener.sequences == [1], LONG)
            counters = listener.subscriber.counters()
            assert counters["foreign"] + counters["truncated"] == 5
            assert counters["disconnected"] == 0
            assert poll(lambda: publisher.counters()["foreign"] == 1, LONG)
    finally:
        raw.close()


def test_an_unrequested_hello_reply_is_not_sent(shared: NatsServer) -> None:
    with listening(settings(shared.url), "") as listener, publishing(settings(shared.url)) as publisher:
        publisher.send_event(Envelope("nats", WHO, "", 0, [], Hello({}, {}, ZERO, 0.0, "n1")))
        publisher.send_event(envelope(7))
        assert poll(lambda: listener.sequences == [7], LONG)
        assert publisher.counters()["unrequested"] == 1


def test_other_prefixes_are_other_networks(shared: NatsServer) -> None:
    one, two = (settings(shared.url, prefix=prefix) for prefix in ("net.one", "net.two"))
    with listening(one, "") as mine, listening(two, "") as others, publishing(one) as first, publishing(two) as second:
        first.send_event(envelope(1))
        second.send_event(envelope(2))
        assert poll(lambda: (mine.sequences, others.sequences) == ([1], [2]), LONG)


@contextmanager
def paused(server: NatsServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_senders_never_wait_long_for_a_server_that_stalls() -> None:
    large = b"1" * 200_000
    with server() as stalling:
        options = settings(stalling.url, send_queue=10, send_wait=0.2, keepalive_timeout=3600.0)
        with publishing(options) as publisher:
            with paused(stalling):
                longest, failure, stands, until = 0.0, "", 0.0, time.monotonic() + LONG
                # A pause of this process may fill the queue before the buffers are full.
                while not (failure and stands > 0.1) and time.monotonic() < until:
                    began = time.monotonic()
                    try:
                        publisher.send_event(envelope(value=large))
                    except TransportError as error:
                        failure = str(error)
                    longest = max(longest, time.monotonic() - began)
                    stands = publisher.sending_for(time.monotonic())
                assert stands > 0.1
                assert "send_queue in [pubsub_nats]" in failure
                assert longest < 1.0 + ROOM
            assert poll(lambda: publisher.sending_for(time.monotonic()) == 0.0, LONG)
            publisher.send_event(envelope())


def test_a_silent_server_is_a_lost_one() -> None:
    with server() as stalling:
        options = settings(stalling.url, keepalive_interval=0.1, keepalive_timeout=0.5, connect_timeout=LONG)
        with publishing(options) as publisher:
            with paused(stalling):
                assert poll(lambda: not publisher._connection.is_connected, LONG)
                with pytest.raises(TransportError, match="connecting is retried"):
                    publisher.send_event(envelope())
            assert poll(lambda: sends(publisher), LONG)


def sends(publisher: NatsPublisher) -> bool:
    """Whether the publisher has a connection, which may be lost again."""
    try:
        publisher.send_event(envelope())
    except TransportError:
        return False
    return True


def greeting(server: NatsServer) -> str:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        return connection.recv(65536).decode()


def test_a_client_moves_to_another_server_of_the_cluster() -> None:
    routes = [free_port(), free_port()]

    def cluster(mine: int) -> str:
        others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes if port != routes[mine])
        return f"cluster {{ name: c, listen: 127.0.0.1:{routes[mine]}, routes: [{others}] }}\n"

    with ExitStack() as ending:
        first, second = (ending.enter_context(server(cluster(number))) for number in range(2))
        other = ending.enter_context(publishing(settings(second.url)))
        listener = ending.enter_context(listening(settings(first.url), "a"))
        assert poll(lambda: f":{second.port}" in greeting(first), LONG), "the servers are not connected"
        first.kill()
        listener.until_connected()
        other.send_event(envelope(3))
        assert poll(lambda: listener.sequences == [3], LONG)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), *names]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


def test_connections_are_encrypted_and_the_server_is_checked(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with server(f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n') as encrypted:
        url = encrypted.url.replace("nats://", "tls://")
        good = settings(url, tls_ca_file=str(cert))
        with listening(good, "a") as listener, publishing(good) as publisher:
            publisher.send_event(envelope())
            assert poll(lambda: listener.sequences == [1], LONG)
        with (
            pytest.raises(TransportError, match=r"gives no encrypted connection: .*certificate"),
            publishing(settings(url)),
        ):
            pass


def test_a_server_without_encryption_does_not_get_the_password(shared: NatsServer) -> None:
    url = shared.url.replace("nats://", "tls://")
    with (
        pytest.raises(TransportError, match=r"gives no encrypted connection: it does not require TLS"),
        publishing(settings(url, user="me", password="secret")),
    ):
        pass


def test_closing_publisher_sends_the_queued_envelopes(shared: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)
    with listening(settings(shared.url), "a") as listener:
        with publishing(settings(shared.url)) as publisher:
            for sequence in range(1, 2001, 2):  # with gaps, so that no two share a frame
                publisher.send_event(envelope(sequence))
        assert poll(lambda: len(listener.sequences) == 1000, LONG)
        assert publisher.counters()["lost"] == 0
