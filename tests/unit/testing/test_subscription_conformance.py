"""The form of the checks of subscriptions. The tests in tests/conformance show that they pass and fail as they must."""

import inspect
from collections import deque
from collections.abc import Callable
from functools import partial

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.testing import subscription_conformance
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_lib.testing.forwarding import ForwardingSubscriber
from pubsub_lib.testing.subscription_conformance import SubscriptionConformance
from pubsub_memory import MemoryBus, MemoryDriver

CHECKS = [name for name, _ in inspect.getmembers(SubscriptionConformance, inspect.isfunction) if name[:5] == "test_"]


def test_driver_suite_contains_the_checks_of_subscriptions() -> None:
    assert set(CHECKS) <= set(dir(DriverConformance))
    assert len(CHECKS) >= 5


def test_checks_are_skipped_only_by_declared_capabilities() -> None:
    assert "pytest.skip" not in inspect.getsource(subscription_conformance)


class LateOrders(ForwardingSubscriber):
    """As over ZeroMQ on a busy machine: the subscriber ignores an unregistered topic at once, and the publisher learns
    its end and the new registration one after the other, when it has already sent a link on it again.
    """

    def __init__(self, inner: Subscriber) -> None:
        super().__init__(inner)
        self._ended = set[str]()
        self._orders = deque[Callable[[], None]]()
        self.missed = 0

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def passed(envelope: Envelope) -> None:
            if envelope.topic not in self._ended:
                on_envelope(envelope)
            if self._orders:
                self._orders.popleft()()

        super().initialize(passed, on_connected)

    def register_topic(self, topic: str) -> None:
        if topic not in self._ended:
            super().register_topic(topic)
            return
        self._ended.discard(topic)
        ends, begins = partial(super().unregister_topic, topic), partial(super().register_topic, topic)
        self._orders += [ends, self._miss, self._miss, begins]

    def unregister_topic(self, topic: str) -> None:
        self._ended.add(topic)

    def _miss(self) -> None:
        self.missed += 1


class LateDriver(MemoryDriver):
    made: "list[LateOrders]"

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        cls.made.append(LateOrders(super().subscriber(settings)))
        return cls.made[-1]


def test_a_driver_whose_publisher_learns_registrations_late_passes() -> None:
    LateDriver.made = []
    bus = MemoryBus()
    rig = Rig(LateDriver, DriverSettings(options={"bus": bus}), inject=bus.send, patience=10.0)
    DriverConformance().test_a_topic_registered_again_must_be_received_again(rig)
    assert LateDriver.made[0].missed == 4
