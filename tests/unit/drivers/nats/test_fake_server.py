"""The NATS driver with a server of the test: order of messages, the confirmed subscription, connections that end."""

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from _processes import poll

from pubsub_lib.api import DriverSettings, Publisher, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ZERO
from pubsub_lib.errors import TransportError
from pubsub_nats.driver import NatsDriver
from tests.unit.drivers.nats.fake_server import FakeServer, Peer, message
from tests.unit.drivers.nats.test_server import LONG, WHO, Listener, envelope, listening, settings
from tests.unit.drivers.starting import reason_of_a_start_that_close_ends

DATA, HELLO = b"pubsub.data.a", b"pubsub.hello"


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


def body(sequence: int) -> bytes:
    return codec.encode(envelope(sequence))[1]


HELLO_BODY = codec.encode(Envelope("nats", WHO, "", 0, [], Hello({"a": 1}, {}, ZERO, 0.0, "")))[1]


def received(listener: Listener, *wanted: int) -> bool:
    """Whether envelopes with these sequences come, and no others in between; a hello has 0."""
    assert poll(lambda: len(listener.sequences) >= len(wanted), LONG), listener.sequences
    return listener.sequences == list(wanted)


def test_messages_and_hellos_do_not_overtake_each_other(fake: FakeServer) -> None:
    with listening(settings(fake.url), "a") as listener:
        peer = fake.peers[0]
        hello = message(peer.subjects[HELLO], HELLO, HELLO_BODY)
        data = [message(peer.subjects[DATA], DATA, body(sequence)) for sequence in range(1, 5)]
        peer.send(hello + data[0] + data[1] + data[2] + hello + data[3] + hello)
        assert received(listener, 0, 1, 2, 3, 0, 4, 0), listener.sequences


def test_messages_in_transit_are_received_when_all_topics_are_registered(fake: FakeServer) -> None:
    with listening(settings(fake.url), "a") as listener:
        peer: Peer = fake.peers[0]
        listener.subscriber.register_topic("")
        assert poll(lambda: any(each.startswith(b"UNSUB") for each in peer.commands), LONG)
        peer.send(message(peer.subjects[DATA], DATA, body(1)) + message(peer.subjects[b"pubsub.data.>"], DATA, body(2)))
        assert received(listener, 1, 2), listener.sequences
        assert listener.subscriber.counters()["lost"] == 0


def test_a_connection_is_reported_when_the_server_has_handled_the_subscriptions(fake: FakeServer) -> None:
    with listening(settings(fake.url, keepalive_interval=3600.0), "a"):
        *before, last = [each.split()[0] for each in fake.peers[0].commands]
        assert last == b"PING"
        assert before.count(b"SUB") == 3, fake.peers[0].commands


def test_a_connection_that_ends_at_once_is_retried_with_growing_waits() -> None:
    made: list[float] = []

    def end_when_ready(peer: Peer) -> None:
        if peer.commands.count(b"PING") == 2:
            made.append(time.monotonic())
            peer.end()

    with FakeServer(end_when_ready) as fake:
        listener = Listener(settings(fake.url, reconnect_interval=0.01, max_reconnect_interval=10.0), "a")
        try:
            assert poll(lambda: len(made) > 6, LONG)
        finally:
            listener.subscriber.close()
    assert listener.subscriber.counters()["connected"] >= 1
    assert made[6] - made[5] >= 0.01 * 2**5 / 2


def test_close_ends_the_start_of_a_publisher() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        publisher = NatsDriver.publisher(settings(url, connect_timeout=3600.0))
        reason = reason_of_a_start_that_close_ends(publisher, silent)
    assert reason == "this publisher is closed; make a new one"


@pytest.mark.parametrize("half", [NatsDriver.publisher, NatsDriver.subscriber])
def test_without_a_free_descriptor_the_start_fails_with_one_sentence_and_leaves_no_thread(
    half: Callable[[DriverSettings], Publisher | Subscriber], fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = half(settings(fake.url))
    if isinstance(made, Subscriber):
        made.initialize(lambda received: None, lambda: None)

    def start() -> None:
        if isinstance(made, Subscriber):
            made.daemonize()
        else:
            made.initialize(lambda request: None, lambda: None)

    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "new_event_loop", full)
        with pytest.raises(TransportError, match="Too many open files; raise the limit of open files"):
            start()
    assert poll(lambda: not [each for each in threading.enumerate() if each.name.startswith("pubsub-nats")], LONG)
    if isinstance(made, Subscriber):
        start()  # possible again
        assert poll(lambda: made.counters()["connected"] == 1, LONG)
    made.close()


def test_refused_subjects_are_counted_and_logged_once_for_each_kind(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(settings(fake.url)) as listener:
        for number in range(100):
            for kind in ("Publish", "Subscription"):
                text = f"'Permissions Violation for {kind} to \"pubsub.reply.c.n{number}\"'"
                fake.peers[0].send(b"-ERR %b\r\n" % text.encode())
            fake.peers[0].send(b"-ERR 'Permissions Violation %d'\r\n" % number)
        assert poll(lambda: listener.subscriber.counters()["refused"] == 300, LONG)
        kept = len(listener.subscriber._connection._logged)
    assert caplog.text.count("pubsub.reply.c.n") == 2
    assert kept <= 20


def test_a_connection_whose_reading_failed_is_made_again(fake: FakeServer) -> None:
    with listening(settings(fake.url, keepalive_interval=0.05), "a") as listener:
        fake.peers[0].send(b"-ERR '\xff'\r\n")
        assert poll(lambda: listener.subscriber.counters()["connected"] == 2, LONG)
        fake.peers[-1].send(message(fake.peers[-1].subjects[DATA], DATA, body(1)))
        assert received(listener, 1)
