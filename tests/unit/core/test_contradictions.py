"""Rule 14: what readings of the store show about publishers."""

import random

import pytest

from pubsub_lib.core.contradictions import Contradictions
from pubsub_lib.core.effects import Replace
from pubsub_lib.core.leased_publishers import LeasedPublishers
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import AnswerAge, Delta, Full, Point, SyncAnswer
from pubsub_lib.core.tracker import Tracker
from tests.unit.core.builders import CALM, UUID, History, envelope

LIAR = ("api-1", UUID)
OTHER = ("api-2", "f" * 32)


class Case:
    """A replica of one topic whose first sync is done, and that knows the leases."""

    def __init__(self) -> None:
        self.history = History()
        self.history.some(3)
        self.tracker = Tracker(CALM, Limits(), random.Random(1), 0.0)
        self.tracker.subscribe(["t"], 0.0)
        self.found = Contradictions(self.tracker)
        self.leased = LeasedPublishers(CALM, random.Random(2))
        self.leased.read([UUID], 0.0)
        self.answered(self.answer(0), 0.0)

    def answer(self, position: int) -> SyncAnswer:
        return SyncAnswer(Point(position, 1), {"t": Delta([], Point(position, 1))})

    def answered(self, answer: SyncAnswer, now: float) -> None:
        self.found.answered(answer, self.leased, now)

    def excluded(self, now: float) -> list[str]:
        return [each.uuid for each in self.found.quarantine.excluded(now)]

    def undone(self, *sources: tuple[str, str] | None, reached: float = 4.0, now: float = 5.0) -> tuple[object, ...]:
        full = Full({}, Point(3, 1), False)
        replaced = [Replace("t", full, Point(4, 9), source, reached) for source in sources]
        return self.found.undone(replaced, (), now)


def test_publisher_of_an_undone_point_is_excluded_and_the_store_is_polled() -> None:
    case = Case()
    assert not case.tracker.freshness.is_polling(5.0)
    assert case.undone(LIAR, LIAR, None) == (LIAR,)
    assert case.excluded(5.0) == [UUID]
    assert case.tracker.counters.contradicted == 1
    assert case.tracker.freshness.is_polling(5.0)


def test_reading_of_the_store_that_was_undone_accuses_no_publisher() -> None:
    case = Case()
    assert case.undone(None) == ()
    assert case.tracker.counters.contradicted == 0
    assert not case.tracker.freshness.is_polling(5.0)


def test_publisher_that_is_excluded_for_its_counts_makes_the_replica_poll() -> None:
    case = Case()
    assert case.found.undone([], [LIAR], 5.0) == ()
    assert case.tracker.freshness.is_polling(5.0)


def test_store_that_went_back_accuses_no_publisher() -> None:
    case = Case()
    case.answered(case.answer(10), 1.0)
    case.answered(case.answer(9), 5.0)
    case.tracker.freshness.denied = [(OTHER, 4.0)]
    assert case.undone(LIAR) == ()
    assert not case.found.denied(case.answer(9), 5.0)
    assert not case.excluded(5.0)
    assert case.tracker.counters.contradicted == 1, "of the point; the position is none"


@pytest.mark.parametrize("position", [10, 11])
def test_store_that_did_not_go_back_accuses_its_publisher(position: int) -> None:
    case = Case()
    case.answered(case.answer(10), 1.0)
    case.answered(case.answer(position), 5.0)
    assert case.undone(LIAR) == (LIAR,)


def test_publishers_of_denied_positions_are_excluded_once() -> None:
    case = Case()
    case.tracker.freshness.denied = [(OTHER, 4.0)]
    case.answered(case.answer(3), 5.0)
    assert [*case.found.denied(case.answer(3), 5.0)] == [OTHER]
    assert case.tracker.freshness.denied == []
    assert case.tracker.counters.contradicted == 1
    assert case.tracker.freshness.is_polling(5.0)
    assert not case.found.denied(case.answer(3), 6.0)


def test_publisher_whose_point_is_undone_by_the_same_answer_is_counted_once() -> None:
    case = Case()
    case.answered(case.answer(3), 5.0)
    case.undone(LIAR)
    case.tracker.freshness.denied = [(LIAR, 4.0)]
    assert not case.found.denied(case.answer(3), 5.0)
    assert case.tracker.counters.contradicted == 1
    case.answered(case.answer(3), 60.0)
    case.tracker.freshness.denied = [(LIAR, 59.0)]
    case.found.denied(case.answer(3), 60.0)
    assert case.tracker.counters.contradicted == 2


def test_links_of_an_excluded_publisher_are_counted_and_judged() -> None:
    case = Case()
    link = case.history.one()
    case.found.exclude(envelope(link), "t", 3.0)
    case.found.exclude(envelope(link), "unknown", 3.0)
    assert case.tracker.counters.quarantined == 2
    assert case.tracker.gaps.tally.holes == 0
    case.found.reading(["t"])
    assert [*case.found.denied(case.answer(link.point.position - 1), 5.0)] == [LIAR]
    assert case.excluded(5.0) == [UUID]


def relayed(answer: SyncAnswer) -> SyncAnswer:
    return SyncAnswer(answer.store, answer.chains, ages={"t": AnswerAge(0.0, 0.0)})


def test_answer_of_a_relay_excludes_no_publisher_at_once() -> None:
    """The relay may have been misled itself."""
    case = Case()
    case.answered(relayed(case.answer(3)), 5.0)
    assert case.undone(LIAR) == ()
    case.answered(case.answer(3), 30.0)
    assert case.undone(LIAR, reached=29.0, now=30.0) == (LIAR,)


def test_answer_of_a_relay_does_not_show_that_the_store_went_back() -> None:
    case = Case()
    case.answered(case.answer(10), 1.0)
    case.answered(relayed(case.answer(3)), 2.0)
    case.answered(case.answer(10), 5.0)
    assert case.undone(LIAR) == (LIAR,)


def test_relay_as_a_parent_is_not_excluded_at_once() -> None:
    case = Case()
    case.found.has_parents = True
    case.answered(case.answer(3), 5.0)
    assert case.undone(LIAR) == ()


def test_without_the_leases_no_publisher_is_excluded_at_once() -> None:
    case = Case()
    case.leased = LeasedPublishers(CALM, random.Random(2))
    case.answered(case.answer(3), 5.0)
    assert case.undone(LIAR) == ()
