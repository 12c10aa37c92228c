"""The part of the conformance suite that cuts and restores all connections.

A driver without ``Capabilities.connections`` has no connection to cut. A hop (``fan_out=False``) never calls
``on_connected``, and its publishers get no hello requests.
"""

import itertools
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

from pubsub_lib.api import Publisher, Subscriber
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.errors import TransportError
from pubsub_lib.testing.checks import (
    CLOSE_SECONDS,
    ROOM,
    SEND_SECONDS,
    all_at_once,
    eventually,
    ignore,
    needs_connections,
    needs_fan_out,
    needs_no_connected,
    needs_way_to_stall,
)
from pubsub_lib.testing.rig import Connections, Listener, Rig, Scene, scene

CUTS = 2
"""More than one, because a connection that was made again may also be lost."""
CALLS = 100
CALLING_SECONDS = 3.0
"""Maximum time for these calls, because each of them may wait."""

LARGE, MUCH = 100_000, 20_000_000
"""Bytes of one link, and of all that are sent to peers that read nothing: more than Linux gives two sockets."""


class ConnectionConformance:
    """The requirements for both halves about connections."""

    def test_both_halves_must_connect_again_by_themselves(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            for _ in range(CUTS):
                with on.cut_off():
                    lost = on.try_send("tenant-1")
                    if lost is not None:
                        arrived = partial(_has, listener, lost)
                        assert not listener.received.waits(arrived, 0.2), "the rig's cut does not cut: a link arrived"
                on.settle(listener, "tenant-1")

    def test_every_topic_must_be_subscribed_to_again(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1", "tenant-2", "tenant-3")
            for number in range(CUTS):
                with on.cut_off():
                    on.try_send("tenant-1")
                    listener.subscriber.register_topic(f"new-{number}")
                on.settle(listener, "tenant-1", "tenant-2", "tenant-3", *(f"new-{each}" for each in range(number + 1)))
            link = on.send("tenant-1")
            on.wait_for(listener, link)
            on.fence(listener, "tenant-1")
            assert listener.received.points("tenant-1").count(link.point) == 1, "one link came twice after a cut"

    def test_everything_must_be_subscribed_to_again(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on:
            listener = on.listening(ALL)
            with on.cut_off():
                on.try_send("tenant-1")
            on.settle(listener, ALL, "tenant-1")

    def test_a_topic_unregistered_while_cut_off_must_not_come_back(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1", "tenant-2")
            with on.cut_off():
                listener.subscriber.unregister_topic("tenant-2")
            on.settle(listener, "tenant-1")

            def undelivered() -> bool:
                link = on.send("tenant-2")
                on.fence(listener, "tenant-1")
                return link.point not in listener.received.points("tenant-2")

            eventually(undelivered, rig.patience, "a topic that was unregistered while cut off is not delivered")

    def test_daemonize_must_not_need_a_connection(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on:
            ignore(on.sender)
            with on.cut_off():
                listener = on.subscriber("tenant-1")
            on.settle(listener, "tenant-1")

    def test_on_connected_must_be_called_at_each_connection(self, rig: Rig) -> None:
        needs_fan_out(rig)
        needs_connections(rig)
        with scene(rig) as on:
            listener, sender = on.listening("tenant-1"), on.sender
            before = _until_connected(on, listener, sender.connected, (0, 0))
            for _ in range(CUTS):
                with on.cut_off():
                    on.try_send("tenant-1")
                    before = (listener.connected.count, sender.connected.count)
                before = _until_connected(on, listener, sender.connected, before)

    def test_on_connected_must_come_when_a_hello_request_is_answered(self, rig: Rig) -> None:
        """Links published after the reply must arrive, without a retry."""
        needs_fan_out(rig)
        needs_connections(rig)
        with scene(rig) as on:
            on.answering()
            on.listening("tenant-1")
            for _ in range(5):
                listener = on.subscriber("tenant-1", "tenant-2", start=False)
                listener.connected.hook = _asking(listener)
                listener.subscriber.daemonize()
                listener.received.until(partial(_answered, listener), "a hello request of on_connected was answered")
                for topic in ("tenant-1", "tenant-2"):
                    on.wait_for(listener, on.send(topic))

    def test_a_hello_must_reach_the_subscriber_after_a_cut(self, rig: Rig) -> None:
        """In ``on_connected``, the subscriber sends a hello request and the publisher sends a hello: the later one must
        succeed. Where subscribers connect to the publisher itself, the request alone is enough."""
        needs_fan_out(rig)
        needs_connections(rig)
        with scene(rig) as on:
            sender = on.answering()
            listener = on.listening("tenant-1")
            with on.cut_off():
                on.try_send("tenant-1")
                listener.connected.hook = _asking(listener)
                if not rig.driver.capabilities.bind_based:
                    sender.connected.hook = lambda: sender.publisher.send_event(sender.hello())
            listener.received.until(partial(_answered, listener), "a hello came after a cut")

    def test_what_on_connected_raises_must_be_counted_and_not_end_the_thread(self, rig: Rig) -> None:
        needs_fan_out(rig)
        needs_connections(rig)
        for error in (ValueError("a service's error"), SystemExit(3)):
            with scene(rig) as on:
                listener, sender = on.listening("tenant-1"), on.sender

                def fail(error: BaseException = error) -> None:
                    raise error

                listener.connected.hook = sender.connected.hook = fail
                before = (listener.connected.count, sender.connected.count)
                with on.cut_off():
                    on.try_send("tenant-1")
                _until_connected(on, listener, sender.connected, before)
                on.settle(listener, "tenant-1")
                for half in (listener.subscriber, sender.publisher):
                    eventually(partial(_counted_error, half), rig.patience, f"{half!r} counted no callback_errors")

    def test_on_connected_must_not_be_called_without_declared_connections(self, rig: Rig) -> None:
        needs_no_connected(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            on.fence(listener, "tenant-1")
            assert (listener.connected.count, on.sender.connected.count) == (0, 0)

    def test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            with on.cut_off():
                _call_often(lambda: ignore(on.send("tenant-1")), "send_event")
                _call_often(lambda: listener.subscriber.register_topic("tenant-2"), "register_topic")
                _call_often(lambda: listener.subscriber.unregister_topic("tenant-2"), "unregister_topic")
                nonces = itertools.count()
                _call_often(lambda: listener.subscriber.request_hello(f"n{next(nonces)}", ["a"]), "request_hello")
            on.settle(listener, "tenant-1")

    def test_send_event_must_not_block_while_peers_read_nothing(self, rig: Rig) -> None:
        needs_way_to_stall(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            ignore(on.sender)
            with on.stalled():
                all_at_once([partial(_send_much, on)], CALLING_SECONDS + SEND_SECONDS, "send_event")
            on.settle(listener, "tenant-1")

    def test_close_must_be_quick_while_peers_read_nothing(self, rig: Rig) -> None:
        needs_way_to_stall(rig)
        with scene(rig) as on, ExitStack() as resuming:
            listener = on.listening("tenant-1")
            resuming.enter_context(on.stalled())
            all_at_once([partial(_send_much, on)], CALLING_SECONDS + SEND_SECONDS, "send_event")
            all_at_once([listener.subscriber.close, on.sender.publisher.close] * 2, CLOSE_SECONDS)

    def test_close_must_be_quick_while_cut_off(self, rig: Rig) -> None:
        needs_connections(rig)
        with scene(rig) as on, ExitStack() as restoring:
            listener = on.listening("tenant-1")
            restoring.enter_context(on.cut_off())
            on.try_send("tenant-1")
            all_at_once([listener.subscriber.close, on.sender.publisher.close] * 2, CLOSE_SECONDS)


def _until_connected(on: Scene, listener: Listener, sender: Connections, before: tuple[int, int]) -> tuple[int, int]:
    """Wait until ``on_connected`` of both halves was called once more; return the numbers of calls."""
    listener.connected.until_more_than(before[0], on.rig.patience, "subscriber")
    sender.until_more_than(before[1], on.rig.patience, "publisher")
    return listener.connected.count, sender.count


def _asking(listener: Listener) -> Callable[[], None]:
    """Return a hook that sends a hello request with a new nonce at each connection."""
    return lambda: listener.subscriber.request_hello(uuid.uuid4().hex, ["tenant-1"])


def _has(listener: Listener, link: Link) -> bool:
    return link.point in listener.received.points(link.topic)


def _counted_error(half: Publisher | Subscriber) -> bool:
    """Look once; a thread of the driver may count after the call that raised."""
    time.sleep(0.01)
    return half.counters().get("callback_errors", 0) >= 1


def _answered(listener: Listener) -> bool:
    return any(each.hello is not None for each in list(listener.received.envelopes))


def _send_much(on: Scene) -> None:
    """Send more than the buffers of connections hold. The transport may refuse it."""
    large = {"key": '"' + "x" * LARGE + '"'}
    until = time.monotonic() + CALLING_SECONDS
    for _ in range(MUCH // LARGE):
        began = time.monotonic()
        with suppress(TransportError):
            on.send("tenant-1", large)
        took = time.monotonic() - began
        assert took < SEND_SECONDS + ROOM, f"send_event blocked for {took:.1f} s on peers that read nothing"
        if time.monotonic() > until:
            return


def _call_often(call: Callable[[], None], name: str) -> None:
    """Each call must return in time and raise nothing but TransportError."""
    until = time.monotonic() + CALLING_SECONDS
    for _ in range(CALLS):
        began = time.monotonic()
        try:
            call()
        except TransportError:
            pass  # the contract allows this
        except Exception as error:
            raise AssertionError(f"{name} raised {error!r} while cut off, and not TransportError") from error
        took = time.monotonic() - began
        assert took < SEND_SECONDS + ROOM, f"{name} blocked for {took:.1f} s while cut off"
        if time.monotonic() > until:
            return


__all__ = ["ConnectionConformance"]
