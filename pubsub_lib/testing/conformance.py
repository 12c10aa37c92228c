"""The conformance suite for drivers. It is shipped with the library. The author of a driver writes::

    class TestMine(DriverConformance):
        @pytest.fixture
        def rig(self):
            return Rig(
                MyDriver, DriverSettings(addresses=("mine://...",)),
                inject=my_raw_send, cut=proxy.cut, restore=proxy.restore,
            )

Each "must" of :mod:`pubsub_lib.api` has a check here that is named after it. A check is skipped only when it does not
apply to the driver's declared capabilities. No check sleeps: it waits for the expected message. To check that a message
does not arrive, it waits for another message that was sent later.
"""

import threading
import time

import msgspec
import pytest

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import merge
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.testing.checks import (
    CLOSE_SECONDS,
    ROOM,
    SEND_SECONDS,
    all_at_once,
    eventually,
    ignore,
    in_a_fork,
    needs_envelopes,
    needs_fan_out,
    only_ours,
    raiser,
    takes,
)
from pubsub_lib.testing.connection_conformance import ConnectionConformance
from pubsub_lib.testing.hello_conformance import HelloConformance
from pubsub_lib.testing.life_conformance import LifeConformance
from pubsub_lib.testing.rig import Listener, Rig, Scene, scene
from pubsub_lib.testing.subscription_conformance import SubscriptionConformance

DROPS = ("truncated", "oversized", "version", "foreign", "overflow")


class PublisherConformance:
    """The requirements of :class:`pubsub_lib.api.Publisher`."""

    def test_send_event_must_reach_every_subscriber_of_the_topic(self, rig: Rig) -> None:
        needs_fan_out(rig)
        with scene(rig) as on:
            listeners = [on.listening("tenant-1") for _ in range(3)]
            link = on.send("tenant-1")
            for listener in listeners:
                on.wait_for(listener, link)

    def test_send_event_must_reach_the_subscribers_of_everything(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening(ALL)
            for topic in ("tenant-1", "tenant-10", "mieter-ä"):
                on.wait_for(listener, on.send(topic))

    def test_send_event_must_not_lose_an_envelope_silently(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            links = [on.send("tenant-1") for _ in range(300)]
            on.fence(listener, "tenant-1")
            missing = {link.point for link in links} - set(listener.received.points("tenant-1"))
            seen = sum(listener.subscriber.counters().get(name, 0) for name in (*DROPS, "lost"))
            assert len(missing) <= seen, f"{len(missing)} of 300 links are missing but only {seen} drops were counted"

    def test_send_event_must_keep_the_order_of_a_topic(self, rig: Rig) -> None:
        if not rig.driver.capabilities.ordered:
            pytest.skip("the driver declares that it is not ordered")
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            links = [on.send("tenant-1") for _ in range(100)]
            on.wait_for(listener, links[-1])
            sent = [link.point for link in links]
            came = [point for point in listener.received.points("tenant-1") if point in set(sent)]
            assert came == sorted(came, key=sent.index), "links of one publisher on one topic overtook each other"

    def test_send_event_must_carry_a_large_link_whole(self, rig: Rig) -> None:
        small = Limits(max_frame_bytes=16 * 1024, max_value_bytes=4096)
        rig.settings = msgspec.structs.replace(rig.settings, limits=small)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            link = on.send("tenant-1", {f"key-{number}": '"' + "x" * 1000 + '"' for number in range(100)})
            on.wait_for(listener, link)
            parts = [
                message
                for envelope in listener.received.envelopes
                for message in envelope.messages
                if message.link.point == link.point
            ]
            assert len(parts) > 1
            assert merge(sorted(parts, key=lambda message: message.part)) == link

    def test_send_event_must_not_block(self, rig: Rig) -> None:
        needs_envelopes(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            stuck = threading.Event()
            listener.received.hook = lambda envelope: ignore(stuck.wait(60))
            try:
                for _ in range(2000):
                    began = time.monotonic()
                    on.send("tenant-1")
                    took = time.monotonic() - began
                    assert took < SEND_SECONDS + ROOM, f"send_event blocked for {took:.1f} s on a slow subscriber"
            finally:
                listener.received.hook = lambda envelope: None
                stuck.set()

    def test_send_event_must_refuse_what_is_oversized(self, rig: Rig) -> None:
        needs_envelopes(rig)
        rig.settings = msgspec.structs.replace(rig.settings, limits=Limits(max_frame_bytes=2000, max_value_bytes=100))
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            large = on.link("tenant-1", {"key": '"' + "x" * 3000 + '"'})
            envelope = on.sender.envelopes(on.link("tenant-1"), rig.settings)[0]
            too_large = msgspec.structs.replace(
                envelope, messages=[msgspec.structs.replace(envelope.messages[0], link=large)]
            )
            with pytest.raises(FrameError) as caught:
                on.sender.publisher.send_event(too_large)
            assert caught.value.reason == "oversized"
            on.fence(listener, "tenant-1")

    def test_send_event_must_be_refused_before_initialize_and_after_close(self, rig: Rig) -> None:
        needs_envelopes(rig)
        with scene(rig) as on:
            envelope = on.sender.envelopes(on.link("tenant-1"), rig.settings)[0]
            fresh = rig.driver.publisher(rig.settings)
            with pytest.raises(TransportError):
                fresh.send_event(envelope)
            fresh.close()
            on.sender.publisher.close()
            with pytest.raises(TransportError):
                on.sender.publisher.send_event(envelope)

    def test_send_event_must_be_refused_in_a_forked_child(self, rig: Rig) -> None:
        needs_envelopes(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            envelope = on.sender.envelopes(on.link("tenant-1"), rig.settings)[0]

            def child() -> None:
                with pytest.raises(TransportError):
                    on.sender.publisher.send_event(envelope)
                on.sender.publisher.close()

            in_a_fork(child, rig.patience)
            on.fence(listener, "tenant-1")

    def test_send_event_must_raise_no_foreign_exception(self, rig: Rig) -> None:
        with scene(rig) as on:
            envelope = on.sender.envelopes(on.link("tenant-1"), rig.settings)[0]
            for bad in (
                msgspec.structs.replace(envelope, topic="tenant-2"),
                msgspec.structs.replace(envelope, uuid="no hex"),
                msgspec.structs.replace(envelope, topic="\ud800"),
                msgspec.structs.replace(envelope, messages=[]),
            ):
                only_ours(lambda bad=bad: on.sender.publisher.send_event(bad))  # type: ignore[misc]

    def test_initialize_must_be_called_once(self, rig: Rig) -> None:
        with scene(rig) as on, pytest.raises(TransportError):
            on.sender.publisher.initialize(lambda ask: None, lambda: None)

    def test_counters_must_count_what_was_sent(self, rig: Rig) -> None:
        needs_envelopes(rig)
        with scene(rig) as on:
            assert on.sender.publisher.counters()["sent"] == 0
            on.send("tenant-1")
            assert on.sender.publisher.counters()["sent"] == 1

    def test_sending_for_must_be_zero_while_it_waits_for_messages(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            on.fence(listener, "tenant-1")

            def waiting() -> bool:
                return on.sender.publisher.sending_for(time.monotonic()) == 0.0

            eventually(lambda: listener.received.waits(waiting, 0.01), rig.patience, "the sending thread waits")

    def test_keys_must_do_nothing_without_their_setting(self, rig: Rig) -> None:
        if rig.settings.keys:
            pytest.skip("the rig has keys")
        with scene(rig) as on:
            assert on.sender.publisher.public_key() == ""
            on.sender.publisher.admit(())
            listener = on.subscriber("tenant-1", start=False)
            for address in rig.settings.addresses:
                listener.subscriber.pin_key(address, "k" * 40)
            listener.subscriber.know_publishers(())  # by the directory; messages of others are still received
            listener.subscriber.daemonize()
            on.settle(listener, "tenant-1")

    def test_close_of_a_publisher_must_be_idempotent_quick_and_safe_from_any_thread(self, rig: Rig) -> None:
        with scene(rig) as on:
            on.send("tenant-1")
            publisher = on.publisher().publisher
            all_at_once([publisher.close] * 4, CLOSE_SECONDS)
            publisher.close()


class SubscriberConformance:
    """The requirements of :class:`pubsub_lib.api.Subscriber`, except those about its end."""

    def test_register_topic_must_be_exact(self, rig: Rig) -> None:
        needs_fan_out(rig)
        with scene(rig) as on:
            witness = on.listening(ALL)
            listener = on.listening("tenant-1")
            near = [on.send(topic) for topic in ("tenant-10", "tenant-", "tenant-1 ", "TENANT-1", "xtenant-1")]
            for link in near:
                on.wait_for(witness, link)
            on.fence(listener, "tenant-1")
            assert {envelope.topic for envelope in listener.received.envelopes if envelope.messages} == {"tenant-1"}

    def test_register_topic_must_work_while_running(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            listener.subscriber.register_topic("tenant-2")
            on.settle(listener, "tenant-2")
            on.fence(listener, "tenant-1")

    def test_register_topic_must_be_idempotent(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            listener.subscriber.register_topic("tenant-1")
            listener.subscriber.register_topic(ALL)
            on.settle(listener, "tenant-2")
            link = on.send("tenant-1")
            on.wait_for(listener, link)
            on.fence(listener, "tenant-1")
            assert listener.received.points("tenant-1").count(link.point) == 1, "one link came twice"

    def test_unregister_topic_must_stop_the_topic_alone_and_be_idempotent(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1", "tenant-2")
            for topic in ("tenant-2", "tenant-2", "never-registered"):
                listener.subscriber.unregister_topic(topic)

            def undelivered() -> bool:
                link = on.send("tenant-2")
                on.fence(listener, "tenant-1")
                return link.point not in listener.received.points("tenant-2")

            eventually(undelivered, rig.patience, "an unregistered topic is no longer delivered")

    def test_register_topic_must_raise_no_foreign_exception(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            for topic in ("a\0b", "\ud800", "t" * 10_000):
                only_ours(lambda topic=topic: listener.subscriber.register_topic(topic))  # type: ignore[misc]
                only_ours(lambda topic=topic: listener.subscriber.unregister_topic(topic))  # type: ignore[misc]
            on.fence(listener, "tenant-1")

    def test_register_listen_address_must_be_idempotent(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            for address in (*rig.settings.addresses, *rig.settings.addresses):
                listener.subscriber.register_listen_address(address)
            for address in rig.settings.addresses[1:]:
                listener.subscriber.unregister_listen_address(address)
                listener.subscriber.unregister_listen_address(address)
            link = on.send("tenant-1")
            on.wait_for(listener, link)
            on.fence(listener, "tenant-1")
            assert listener.received.points("tenant-1").count(link.point) == 1, "one link came twice"

    def test_bad_input_must_be_counted_by_reason_and_never_end_the_thread(self, rig: Rig) -> None:
        needs_envelopes(rig)
        assert rig.inject is not None, "the rig of a driver that carries envelopes must be able to inject raw frames"
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            head, body = codec.encode(on.sender.envelopes(on.link("tenant-1"), rig.settings)[0])
            for reason, bad in (
                ("truncated", body[:-3]),
                ("truncated", b""),
                ("version", b"\x97\x7f" + body[2:]),
                ("foreign", b"\x97\x01" + b"\xc1" * 20),
                ("foreign", b"GET / HTTP/1.1"),
                ("oversized", b"\x00" * (rig.settings.limits.max_frame_bytes + 1)),
            ):
                before = listener.subscriber.counters()[reason]
                rig.inject(head, bad)

                def counted(reason: str = reason, before: int = before) -> bool:
                    on.settle(listener, "tenant-1")  # the thread lives; the connection may have to be made again
                    return listener.subscriber.counters()[reason] > before

                eventually(counted, rig.patience, f"a {reason} message is counted")

    def test_a_wrong_number_of_frames_must_be_counted_and_never_end_the_thread(self, rig: Rig) -> None:
        """For a rig whose ``inject`` takes any number of frames. A transport of whole messages has no wrong number."""
        needs_envelopes(rig)
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            head, body = codec.encode(on.sender.envelopes(on.link("tenant-1"), rig.settings)[0])
            for frames in ((head,), (head, body, body, body)):  # a third frame is a signature, which may be there
                if rig.inject is None or not takes(rig.inject, frames):
                    continue
                before = _drops(listener)
                rig.inject(*frames)

                def counted(before: int = before) -> bool:
                    on.settle(listener, "tenant-1")
                    return _drops(listener) > before

                eventually(counted, rig.patience, f"a message of {len(frames)} frames is counted")

    def test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            for error in (ValueError("a controller's error"), SystemExit(3)):
                before = listener.subscriber.counters()["callback_errors"]
                listener.received.hook = raiser(error)
                on.wait_for(listener, on.send("tenant-1"))
                on.fence(listener, "tenant-1")  # a later call, so that the one before has ended
                assert listener.subscriber.counters()["callback_errors"] > before

    def test_on_envelope_must_be_called_on_one_thread_one_call_at_a_time(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1", "tenant-2")
            other = on.publisher()

            def send_more() -> None:
                for _ in range(50):
                    for envelope in other.envelopes(on.link("tenant-2"), rig.settings):
                        other.publisher.send_event(envelope)

            thread = threading.Thread(target=send_more)
            thread.start()
            for _ in range(50):
                on.send("tenant-1")
            thread.join(rig.patience)
            on.fence(listener, "tenant-1")
            assert not listener.received.overlapped
            assert len(listener.received.threads) == 1
            assert threading.get_ident() not in listener.received.threads

    def test_envelopes_must_be_numbered_per_publisher_and_topic(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1", "tenant-2")
            for _ in range(5):
                on.fence(listener, "tenant-1")
                on.fence(listener, "tenant-2")
            following: dict[tuple[str, str], int] = {}
            for envelope in listener.received.envelopes:
                if envelope.messages:
                    who = (envelope.uuid, envelope.topic)
                    assert envelope.sequence == following.get(who, envelope.sequence), "sequences have a gap"
                    following[who] = envelope.sequence + len(envelope.messages)

    def test_counters_must_count_what_was_received(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            before = listener.subscriber.counters()["received"]
            for _ in range(5):  # each is received before the next one is sent
                on.fence(listener, "tenant-1")
            came = listener.subscriber.counters()["received"] - before
            assert came >= 4, f"5 messages came, but only {came} were counted"

    def test_counters_must_have_every_reason(self, rig: Rig) -> None:
        with scene(rig) as on:
            # Read before the start, because a driver that polls or connects may count at once.
            counters = on.subscriber(start=False).subscriber.counters()
            assert {"received", "callback_errors", *DROPS} <= set(counters)
            assert set(counters.values()) == {0}


def _drops(listener: Listener) -> int:
    return sum(listener.subscriber.counters()[reason] for reason in DROPS)


class DriverConformance(
    PublisherConformance,
    SubscriberConformance,
    SubscriptionConformance,
    HelloConformance,
    LifeConformance,
    ConnectionConformance,
):
    """All checks. Derive one class per driver (its name starts with ``Test``) and define the fixture ``rig``."""


__all__ = ["DriverConformance", "Rig", "Scene"]
