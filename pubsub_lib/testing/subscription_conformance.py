"""The part of the conformance suite about what a subscriber receives: topics and addresses that come and go."""

import itertools
from typing import Final

import msgspec

from pubsub_lib.core.model import ALL
from pubsub_lib.testing.checks import eventually, needs_bound_addresses, until_answered
from pubsub_lib.testing.rig import Listener, Rig, Scene, scene

_ROUNDS: Final = 5
"""Links in a row after which an address counts as unregistered, and a topic as registered: the call may return before
it takes effect.
"""


class SubscriptionConformance:
    """The requirements for subscribers about topics that are registered again, about ``ALL``, and about addresses."""

    def test_a_topic_registered_again_must_be_received_again(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1", "tenant-2")
            for _ in range(2):
                listener.subscriber.register_topic("tenant-2")  # idempotent: one removal is enough
                listener.subscriber.unregister_topic("tenant-2")
                _until_undelivered(on, listener, "tenant-2", "tenant-1")
                listener.subscriber.register_topic("tenant-2")
                _must_come_again(on, listener, "tenant-2", "tenant-1")

    def test_unregister_topic_of_everything_must_leave_the_topics(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1", ALL)
            for _ in range(2):
                listener.subscriber.unregister_topic(ALL)
                _until_undelivered(on, listener, "tenant-2", "tenant-1")
                _must_come_once(on, listener, "tenant-1")
                listener.subscriber.register_topic(ALL)
                on.settle(listener, "tenant-2")
            _must_come_once(on, listener, "tenant-1")

    def test_unregister_topic_must_leave_everything(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1", ALL)
            on.settle(listener, "tenant-2")
            listener.subscriber.unregister_topic("tenant-1")
            for topic in ("tenant-1", "tenant-2"):
                on.settle(listener, topic)
                _must_come_once(on, listener, topic)

    def test_register_listen_address_must_connect_and_unregister_must_end_it(self, rig: Rig) -> None:
        needs_bound_addresses(rig)
        addresses = rig.settings.addresses
        with scene(rig) as on:
            on.answering()
            witness = on.listening("tenant-1")
            rig.settings = msgspec.structs.replace(rig.settings, addresses=())
            listener, nonces = on.subscriber("tenant-1"), (f"nonce-{number}" for number in itertools.count())
            link = on.send("tenant-1")

            def silent() -> bool:
                """Whether neither a link nor a hello reply has reached the listener; each has reached the witness."""
                nonlocal link
                nonce, link = next(nonces), on.send("tenant-1")
                listener.subscriber.request_hello(nonce, ["tenant-1"])
                until_answered(witness, rig)
                on.fence(witness, "tenant-1")
                return link.point not in listener.received.points("tenant-1") and not listener.received.hellos(nonce)

            def stays_silent() -> bool:
                return all(silent() for _ in range(_ROUNDS))

            assert silent(), "a subscriber without an address received something"
            for _ in range(2):
                for address in addresses:
                    listener.subscriber.register_listen_address(address)
                on.settle(listener, "tenant-1")
                until_answered(listener, rig)
                # A listener that is only slow seemed silent. What it was sent then has come before a later link.
                late = link.point in listener.received.points("tenant-1")
                assert not late, "a link came from an address that was unregistered"
                for address in addresses:
                    listener.subscriber.unregister_listen_address(address)
                eventually(stays_silent, rig.patience, "nothing comes from an address that was unregistered")

    def test_bound_address_must_be_one_that_subscribers_can_register(self, rig: Rig) -> None:
        needs_bound_addresses(rig)
        with scene(rig) as on:
            bound = on.sender.publisher.bound_address()
            if not bound or rig.settings.keys:  # such a driver refuses the port 0; with keys, an address has its pin
                return
            rig.settings = msgspec.structs.replace(rig.settings, addresses=(bound,))
            on.listening("tenant-1")


def _until_undelivered(on: Scene, listener: Listener, topic: str, other: str) -> None:
    """Wait until links on the topic are not delivered any more, while those on the other topic are."""

    def undelivered() -> bool:
        link = on.send(topic)
        on.fence(listener, other)
        return link.point not in listener.received.points(topic)

    eventually(undelivered, on.rig.patience, f"the unregistered topic {topic!r} is no longer delivered")


def _must_come_again(on: Scene, listener: Listener, topic: str, other: str) -> None:
    """Wait until links on the topic come again, each once.

    A first one proves nothing: a publisher that has not received the end of the registration still sends, and sends
    nothing from then until it has received the new one. Links on the other topic come all the time.
    """
    before = len(listener.received.points(topic))

    def comes() -> bool:
        link = on.send(topic)
        on.fence(listener, other)
        return link.point in listener.received.points(topic)

    def keep_coming() -> bool:
        return all(comes() for _ in range(_ROUNDS))

    eventually(keep_coming, on.rig.patience, f"every link comes on the topic {topic!r}, which was registered again")
    came = listener.received.points(topic)[before:]
    assert len(came) == len(set(came)), f"one link on {topic!r} came twice"


def _must_come_once(on: Scene, listener: Listener, topic: str) -> None:
    link = on.send(topic)
    on.wait_for(listener, link)
    on.fence(listener, topic)
    assert listener.received.points(topic).count(link.point) == 1, f"one link on {topic!r} came twice"


__all__ = ["SubscriptionConformance"]
