"""The part of the conformance suite about hellos: requests of subscribers, replies, and hellos to everybody.

A hop (``fan_out=False``) has no hello requests. A driver whose subscribers read the store themselves
(``carries_envelopes=False``) answers them itself.
"""

import itertools
import time

import msgspec

from pubsub_lib.core.codec import hello_request_frame
from pubsub_lib.core.envelope import Hello, HelloRequest
from pubsub_lib.core.limits import MAX_HELLO_TOPICS
from pubsub_lib.core.model import ALL, MAX_NAME_BYTES
from pubsub_lib.testing.checks import (
    ROOM,
    SEND_SECONDS,
    eventually,
    needs_connections,
    needs_envelopes,
    needs_fan_out,
    needs_way_to_ask,
    until_answered,
)
from pubsub_lib.testing.rig import MAX_PAUSE, Listener, Rig, Scene, Sender, scene

NEW_PUBLISHERS = 2
"""With the first one three, each of which needs an address of its own in the rig of a driver that binds."""


class HelloConformance:
    """The requirements for both halves about hellos."""

    def test_a_broadcast_hello_must_reach_every_subscriber(self, rig: Rig) -> None:
        needs_fan_out(rig)
        needs_envelopes(rig)
        with scene(rig) as on:
            topics = (["tenant-1"], ["tenant-2"], [ALL], ["tenant-1", "tenant-2", ALL])
            listeners = [on.listening(*each) for each in topics]
            for listener in listeners:  # all subscriptions take effect within a bounded time

                def came(listener: Listener = listener) -> bool:
                    _broadcast(on, 1)
                    return listener.received.waits(lambda: _broadcasts(listener, 1), MAX_PAUSE)

                eventually(came, rig.patience, "a hello to everybody reached a subscriber of some topics")
            _broadcast(on, 2)
            for listener in listeners:
                listener.received.until(lambda one=listener: _broadcasts(one, 2), "a hello to everybody came")  # type: ignore[misc]
            for listener, (topic, *_) in zip(listeners, topics, strict=True):
                on.fence(listener, topic or "tenant-3")
                assert len(_broadcasts(listener, 2)) == 1, "one hello to everybody came twice"

    def test_on_hello_request_may_send_and_its_errors_must_be_caught(self, rig: Rig) -> None:
        needs_fan_out(rig)
        needs_envelopes(rig)
        with scene(rig) as on:
            errors = {"bad": ValueError("a service's error"), "worse": SystemExit(3)}

            def answer(ask: HelloRequest) -> None:
                if ask.nonce in errors:
                    raise errors[ask.nonce]
                publisher.publisher.send_event(publisher.hello(ask.nonce))

            publisher = on.publisher(answer)
            listener = on.listening("tenant-1")
            until_answered(listener, rig)
            for count, bad in enumerate(errors, 1):
                good = f"good-{count}"
                listener.subscriber.request_hello(bad, ["tenant-1"])
                listener.subscriber.request_hello(good, ["tenant-1"])
                listener.received.until(
                    lambda good=good: listener.received.hellos(good),  # type: ignore[misc]
                    "the hello reply after a failed one came",
                )
                assert publisher.publisher.counters().get("callback_errors", 0) >= count

    def test_bad_hello_requests_must_not_end_the_answers(self, rig: Rig) -> None:
        needs_fan_out(rig)
        needs_way_to_ask(rig)
        good = hello_request_frame("nonce", ["tenant-1"])
        bad = (
            good[:-3],
            b"H",
            b"Hnonce\0\xc1",
            b"Hnonce\0\x91\xa2\xff\xfe",  # a topic that is not UTF-8
            b"H" + b"n" * 1000 + good[6:],
            b"GET / HTTP/1.1",
            good + b"\0" * rig.settings.limits.max_frame_bytes + b"\1",
        )
        with scene(rig) as on:
            publisher = on.answering()
            listener = on.listening("tenant-1")
            until_answered(listener, rig)
            assert rig.ask is not None
            for frame in bad:
                rig.ask(frame)
                until_answered(listener, rig)
            assert all(topic for ask in publisher.asks for topic in ask.topics), "a bad hello request was passed on"

    def test_request_hello_must_be_answered_to_the_asker_alone(self, rig: Rig) -> None:
        needs_fan_out(rig)
        with scene(rig) as on:
            if rig.driver.capabilities.carries_envelopes:
                publisher = on.answering()
            asker, other, everything = on.listening("tenant-1"), on.listening("tenant-1"), on.listening(ALL)
            until_answered(asker, rig)
            for number in range(20):
                nonce = f"nonce-{number}"
                asker.subscriber.request_hello(nonce, ["tenant-1", ALL])
                asker.received.until(lambda nonce=nonce: asker.received.hellos(nonce), f"the reply {nonce!r} came")  # type: ignore[misc]
                if rig.driver.capabilities.carries_envelopes:
                    assert asker.received.hellos(nonce)[0] == publisher.hello(nonce).hello, "the hello was changed"
            for listener in (asker, other, everything):
                on.fence(listener, "tenant-1")
            for number in range(20):
                assert not other.received.hellos(f"nonce-{number}"), "another subscriber got a hello reply"
                assert not everything.received.hellos(f"nonce-{number}"), "a subscriber of everything got a hello reply"

    def test_request_hello_must_carry_its_topics(self, rig: Rig) -> None:
        """Not those that are registered; and as many as a replica names in one request, with the longest names. A
        driver may send several requests, with nonces of its own."""
        needs_fan_out(rig)
        needs_envelopes(rig)
        many = [f"{number:04}".ljust(MAX_NAME_BYTES, "x") for number in range(MAX_HELLO_TOPICS)]
        with scene(rig) as on:
            publisher = on.answering()
            listener = on.listening("tenant-1", "tenant-2")
            until_answered(listener, rig)
            for number, topics in enumerate((["tenant-1", ALL], ["other"], [ALL], ["mieter-ä", "a.b *>"], many)):
                publisher.asks.clear()
                listener.subscriber.request_hello(f"nonce-{number}", topics)
                listener.received.until(
                    lambda topics=topics: set(topics) <= _asked(publisher),  # type: ignore[misc]
                    f"hello requests about {sorted(topics)} came",
                )
                # A request of until_answered may come late.
                others = _asked(publisher) - {*topics, "tenant-1"}
                assert not others, f"a hello request has topics that were not asked for: {sorted(others)}"

    def test_request_hello_must_not_block_and_must_not_need_a_reply(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            began = time.monotonic()
            for number in range(50):
                listener.subscriber.request_hello(f"nonce-{number}", ["tenant-1"])
            took = time.monotonic() - began
            assert took < SEND_SECONDS + ROOM, f"50 hello requests took {took:.1f} s"
            on.fence(listener, "tenant-1")

    def test_initialize_of_a_publisher_must_open_its_channel_for_hello_requests(self, rig: Rig) -> None:
        """One request is answered, without a retry: at once over a broker; where subscribers connect to the publisher
        itself, from ``on_connected``."""
        needs_fan_out(rig)
        needs_envelopes(rig)
        with scene(rig) as on:
            on.answering()
            listener = on.listening("tenant-1")
            until_answered(listener, rig)
            numbers = itertools.count()

            def request() -> None:
                listener.subscriber.request_hello(f"request-{next(numbers)}", ["tenant-1"])

            if rig.driver.capabilities.bind_based:
                listener.connected.hook = request
            for _ in range(NEW_PUBLISHERS):
                publisher = on.answering()
                if not rig.driver.capabilities.bind_based:
                    request()
                listener.received.until(
                    lambda who=publisher: _answered_by(listener, who),  # type: ignore[misc]
                    "a new publisher answered a hello request",
                )

    def test_on_connected_must_come_after_all_topics_were_subscribed_to_again(self, rig: Rig) -> None:
        """Links published after a reply must arrive, without a retry. The request itself may need one, because the
        publisher may connect to a broker later."""
        needs_fan_out(rig)
        needs_connections(rig)
        with scene(rig) as on:
            on.answering()
            listener = on.listening("tenant-1", "tenant-2")
            for _ in range(2):
                with on.cut_off():
                    on.try_send("tenant-1")
                    before = listener.connected.count
                listener.connected.until_more_than(before, rig.patience, "subscriber")
                until_answered(listener, rig)
                for topic in ("tenant-1", "tenant-2"):
                    on.wait_for(listener, on.send(topic))


def _broadcast(on: Scene, mark: int) -> None:
    """Send a hello to everybody; its port of the sync channel is the mark."""
    hello = on.sender.hello()
    assert hello.hello is not None
    marked = msgspec.structs.replace(hello, hello=msgspec.structs.replace(hello.hello, serves=mark))
    on.sender.publisher.send_event(marked)


def _asked(sender: Sender) -> set[str]:
    return {topic for ask in list(sender.asks) for topic in ask.topics}


def _broadcasts(listener: Listener, mark: int) -> list[Hello]:
    return [each for each in listener.received.hellos("") if each.serves == mark]


def _answered_by(listener: Listener, sender: Sender) -> bool:
    found = [each for each in list(listener.received.envelopes) if each.uuid == sender.uuid]
    return any(each.hello is not None and each.hello.nonce.startswith("request-") for each in found)


__all__ = ["HelloConformance"]
