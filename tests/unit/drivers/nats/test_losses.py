"""The NATS publisher sends or counts each envelope that it accepted."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from _processes import poll
from nats import errors

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO
from pubsub_lib.hello_requests import request_limits
from pubsub_lib.send_queue import QueuedMessage
from pubsub_nats.client import NatsClient, access
from pubsub_nats.options import checked
from pubsub_nats.publisher import NatsPublisher
from tests.conformance.nats_wire import server
from tests.unit.drivers.nats.fake_server import FakeServer, message
from tests.unit.drivers.nats.test_server import LONG, WHO, envelope, listening, paused, publishing, settings, unhurried


def hello() -> Envelope:
    return Envelope("nats", WHO, "", 0, [], Hello({}, {}, ZERO, 0.0))


def queued(made: Envelope) -> QueuedMessage:
    return QueuedMessage(made, *codec.encode(made))


def test_an_envelope_accepted_while_the_publisher_closes_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)
    with server() as broker, listening(settings(broker.url), "a") as listener:
        slow = settings(broker.url, reconnect_interval=10.0, max_reconnect_interval=10.0)
        with publishing(slow) as publisher:
            queue = publisher._queue
            really, woken = queue.close, threading.Event()

            def close() -> None:
                # A sender that passed the check before, while the connection's thread looks at an empty queue.
                publisher._connection.wake()
                woken.wait(0.3)
                if not woken.is_set():
                    queue.put(queued(envelope(1)), 0)
                    woken.set()
                really()

            queue.close = close  # type: ignore[method-assign]
        assert publisher.counters()["sent"] == 1
        assert poll(lambda: listener.sequences == [1], LONG)
        assert publisher.counters()["lost"] == 0


def test_envelopes_that_wait_without_a_connection_are_lost_at_the_end() -> None:
    with server() as broker, publishing(settings(broker.url)) as publisher:
        broker.kill()
        assert poll(lambda: not publisher._connection.is_connected, LONG)
        for sequence in range(1, 4):  # of senders that passed the check before
            publisher._queue.put(queued(envelope(sequence)), 0)
        publisher._queue.put(queued(hello()), 0)  # of a reconnection, or the goodbye: no change is lost with it
        publisher.close()
        publisher.close()
        assert publisher.counters()["lost"] == 3


def test_envelopes_that_a_stalled_server_leaves_in_the_queue_are_lost_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with server() as stalling, publishing(settings(stalling.url, send_queue=1000)) as publisher, paused(stalling):
        for sequence in range(1, 100):
            publisher._queue.put(queued(envelope(2 * sequence, b"1" * 200_000)), 0)
        assert poll(lambda: publisher.sending_for(time.monotonic()) > 0.1, LONG)
        publisher.close()
        assert poll(lambda: publisher.counters()["lost"] > 50, LONG)
        counters = publisher.counters()
        assert "ERROR" not in caplog.text
        assert 50 < counters["lost"] < counters["sent"] == 99


def test_a_task_that_waits_for_a_server_that_does_not_read_can_be_cancelled() -> None:
    async def ends_cancelled() -> bool:
        client = NatsClient(access(checked({})), "nats://127.0.0.1:4222", print, print)
        client._status = client.CONNECTED
        client._flush_queue = asyncio.Queue()
        client._flusher_task = flusher = asyncio.create_task(asyncio.sleep(LONG))
        task = asyncio.create_task(client._flush_pending(force_flush=True))
        await client._flush_queue.get()
        task.cancel()
        await asyncio.wait({task}, timeout=LONG)
        flusher.cancel()
        return task.cancelled()

    assert asyncio.run(ends_cancelled())


def send_in_one_batch(publisher: NatsPublisher, *envelopes: Envelope) -> None:
    loop, held, full = publisher._connection._loop, threading.Event(), threading.Event()
    assert loop is not None

    def hold() -> None:
        held.set()
        full.wait(LONG)

    loop.call_soon_threadsafe(hold)
    assert held.wait(LONG)
    for each in envelopes:
        publisher.send_event(each)
    full.set()


def test_lost_counts_envelopes_and_not_hellos_or_the_frames_that_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async def publish(*_: Any) -> None:
        raise errors.ConnectionClosedError

    with server() as broker, publishing(settings(broker.url)) as publisher:
        monkeypatch.setattr(NatsClient, "publish", publish)
        send_in_one_batch(publisher, hello(), *map(envelope, (1, 2, 3)), hello())
        assert poll(lambda: publisher.counters()["lost"] > 0, LONG)
        assert publisher.counters()["lost"] == 3


def test_envelopes_that_were_sent_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)
    with server() as broker, listening(settings(broker.url), "a") as listener:
        with publishing(settings(broker.url)) as publisher:
            send_in_one_batch(publisher, *map(envelope, (1, 2, 3, 7)))
        assert poll(lambda: listener.sequences == [1, 7], LONG)
        assert publisher.counters()["lost"] == 0


def test_only_a_hello_request_over_the_limit_of_requests_is_not_queued() -> None:
    """A request for many topics may be larger than the envelopes of this publisher."""
    limits = Limits(max_frame_bytes=2000, max_value_bytes=100)
    with FakeServer() as fake, publishing(settings(fake.url, limits)) as publisher:
        put: list[bytes] = []

        def keep(frames: Sequence[bytes], peer: int | None = None) -> int:
            put.extend(frames)
            return 0

        publisher._asks.put = keep  # type: ignore[method-assign]
        peer = fake.peers[0]
        sid = peer.subjects[b"pubsub.ask"]
        largest = request_limits(limits).max_frame_bytes
        for size in (largest + 1, 0, largest, 2001):
            peer.send(message(sid, b"pubsub.ask", b"H" * size, b"pubsub.reply.c.n"))
        assert poll(lambda: len(put) == 3, LONG)
        assert [len(each) for each in put] == [0, largest, 2001]
        assert publisher.counters()["oversized"] == 1
