"""Rule 14: messages of publishers whose lease is not known wait, in order, and within limits."""

import random

import pytest

from pubsub_lib.core import unleased_messages
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.leased_publishers import NEVER_DUE, LeasedPublishers
from pubsub_lib.core.provoked_reads import FIRST_PAUSE, FORGET, MAX_PAUSE
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.tracker_counters import Counters
from pubsub_lib.core.unleased_messages import KEPT, UnleasedMessages
from tests.unit.core.builders import CALM, UUID, History, envelope, hello

OTHER = "f" * 32
THIRD = "e" * 32


class Bench:
    def __init__(self) -> None:
        self.counters = Counters()
        self.messages = UnleasedMessages(self.counters)
        self.leased = LeasedPublishers(CALM, random.Random(1))
        self.leased.read([UUID], 0.0)
        self.history = History()

    def hold(self, uuid: str, now: float, links: int = 1) -> Envelope:
        made = envelope(*self.history.some(links), uuid=uuid)
        assert self.messages.hold(made, now) is None
        return made

    def taken(self, now: float, *live: str) -> list[Envelope]:
        self.leased.read([UUID, *live], now)
        return self.messages.taken(self.leased, now)


def test_rule_14_messages_are_returned_in_the_order_of_their_arrival() -> None:
    bench = Bench()
    held = [bench.hold(uuid, 0.0) for uuid in (OTHER, THIRD, OTHER)]
    assert bench.taken(0.1, OTHER, THIRD) == held
    assert (bench.messages.messages, bench.messages.size) == (0, 0)
    assert bench.taken(0.2, OTHER, THIRD) == [], "each is used once"
    assert bench.counters.unleased == 0


def test_hello_does_not_wait() -> None:
    """It proves nothing meanwhile, but its heads show what is missing."""
    bench = Bench()
    reading = bench.history.reading()
    assert bench.messages.hold(hello(reading, uuid=OTHER, sequences={"t": 3}), 0.0) == hello(reading, uuid=OTHER)
    assert bench.taken(0.1, OTHER) == []


def test_rule_14_message_without_a_lease_is_dropped_by_a_reading_after_some_seconds() -> None:
    """Not by the first one: it may have begun before the lease was stored."""
    bench = Bench()
    bench.hold(OTHER, 0.0, links=2)
    later = bench.hold(THIRD, 1.0)
    assert bench.taken(KEPT - 0.1) == []
    assert bench.messages.messages == 3
    assert bench.taken(KEPT) == []
    assert bench.counters.unleased == 2
    assert (bench.messages.messages, bench.messages.size) == (1, size_of(later.messages[0].link))
    assert bench.taken(100.0, THIRD) == [later], "its lease was shown, so the time does not matter"


def test_message_that_still_waits_causes_a_reading() -> None:
    bench = Bench()
    bench.hold(OTHER, 0.0)
    assert bench.leased.read_at == NEVER_DUE
    bench.taken(0.1)
    assert bench.leased.read_at < NEVER_DUE


def test_oldest_messages_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unleased_messages, "MAX_MESSAGES", 5)
    bench = Bench()
    bench.hold(OTHER, 0.0, links=2)
    kept = [bench.hold(uuid, 0.0) for uuid in (OTHER, THIRD, OTHER, OTHER)]
    assert bench.counters.unleased == 2
    assert bench.messages.messages == 4
    kept.append(bench.hold(THIRD, 0.0))
    assert bench.counters.unleased == 2
    assert bench.taken(0.1, OTHER, THIRD) == kept


def test_oldest_messages_are_dropped_when_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    size = size_of(bench.history.one("t", "k0"))
    monkeypatch.setattr(unleased_messages, "MAX_BYTES", 3 * size)
    bench.hold(OTHER, 0.0)
    kept = [bench.hold(OTHER, 0.0) for _ in range(3)]
    assert bench.messages.size == 3 * size
    assert bench.counters.unleased == 1
    assert bench.taken(0.1, OTHER) == kept


def test_message_larger_than_the_limit_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unleased_messages, "MAX_BYTES", 10)
    bench = Bench()
    bench.hold(OTHER, 0.0)
    assert bench.counters.unleased == 1
    assert (bench.messages.messages, bench.messages.size) == (0, 0)


def test_rule_14_heads_of_publishers_without_a_lease_are_used_after_growing_pauses() -> None:
    """Each hello has another UUID."""
    bench = Bench()
    reading = bench.history.reading()
    used: list[float] = []
    for tenth in range(2000):
        envelope = bench.messages.hold(hello(reading, uuid=f"{tenth:032x}"), tenth / 10)
        assert envelope is not None
        assert envelope.hello is not None
        if envelope.hello.store is not None:
            used.append(tenth / 10)
    assert used == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0]
    assert bench.messages.hold(hello(reading, uuid=OTHER), 183.0 + MAX_PAUSE + FORGET) == hello(reading, uuid=OTHER)
    again = bench.messages.hold(hello(reading, uuid=OTHER), 183.0 + MAX_PAUSE + FORGET + FIRST_PAUSE)
    assert again == hello(reading, uuid=OTHER), "the first pause again"


def test_rule_14_shown_lease_ends_the_pauses_of_heads() -> None:
    bench = Bench()
    reading = bench.history.reading()
    for number in range(6):
        bench.messages.hold(hello(reading, uuid=THIRD), 2.0**number - 1)
    bench.hold(OTHER, 31.0)
    bench.taken(31.0, OTHER)
    assert bench.messages.hold(hello(reading, uuid=THIRD), 63.0) == hello(reading, uuid=THIRD)
    assert bench.messages.hold(hello(reading, uuid=THIRD), 64.0) == hello(reading, uuid=THIRD)
