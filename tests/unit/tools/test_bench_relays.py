"""The parts of ``tools/bench relays`` that judge: the staleness against the truth, and the times in proportion."""

from types import SimpleNamespace
from typing import Any

import pytest
from _measurements.relays_processes import Figures, Meter, Truth, joined, times

from pubsub_lib import Timing
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.model import Delta, Full, Point, SyncAnswer
from tests.unit.core.builders import History


def replica(staleness: float, **have: int) -> Any:
    """A replica with this staleness and these numbers by topic."""
    status = SimpleNamespace(staleness=staleness, counters=SimpleNamespace(fulls={"greeted": 1}), polling=False)
    return SimpleNamespace(publishers=("a",), status=lambda: status, get=lambda table, topic: have.get(topic))


@pytest.mark.parametrize(("staleness", "truthful"), [(9.0, True), (2.0, False)])
def test_staleness_is_compared_with_the_oldest_missing_commit(
    monkeypatch: pytest.MonkeyPatch, staleness: float, truthful: bool
) -> None:
    monkeypatch.setattr("_measurements.relays_processes.time", SimpleNamespace(monotonic=lambda: 100.0))
    truth = Truth()
    meter = Meter(truth)
    truth.committed[1:6] = [90.0, 91.0, 92.0, 93.0, 94.0]
    child = replica(staleness, t0=5, t1=2)  # it lacks 4, which was committed 7 s ago, and 6 is not committed
    meter.look(child)
    figures = meter.figures(child)
    assert (figures.worst, figures.least) == (staleness, staleness - 7.0)
    assert (figures.least >= 0.0) is truthful
    assert figures.moved == 100.0
    assert figures.have == 3
    assert meter.figures(child).least == float("inf"), "the figures begin again"


@pytest.mark.parametrize(("cause", "deltas"), [("reconnected", {"t0": 1}), ("polled", {"t0": 1}), ("unverified", {})])
def test_deltas_count_only_with_links_and_not_those_of_a_verification(cause: str, deltas: dict[str, int]) -> None:
    meter, links, point = Meter(Truth()), History().some(2), Point(2, 2)
    answer = SyncAnswer(point, {"t0": Delta(links, point), "t1": Delta([], point), "t2": Full({}, point)})
    meter.answered(StartSync(1, {}, dict.fromkeys(answer.chains, cause)), answer)
    assert meter.figures(replica(0.0)).deltas == deltas


def test_figures_of_several_looks_have_their_extremes() -> None:
    one = Figures(("a",), 1, {}, True, 9.0, 0.5, 0.0, 0.0)
    two = Figures(("b",), 2, {"t0": 1}, False, 3.0, 0.25, 7.0, 0.1)
    assert joined([one, two]) == Figures(("b",), 2, {"t0": 1}, False, 9.0, 0.25, 7.0, 0.1)


def test_times_are_the_defaults_in_proportion() -> None:
    assert times(Timing().max_idle_time) == {name: getattr(Timing(), name) for name in times(1.0)}
    half = Timing(**times(Timing().max_idle_time / 2)).check()
    assert half.round_trip == Timing().round_trip / 2
