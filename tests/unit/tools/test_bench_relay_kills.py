"""The parts of ``tools/bench relay-kills`` that judge: what a replica saw of a relay's end, the bounds, the verdict."""

import msgspec
import pytest
from _measurements.relay_kills import Bounds, Loss, Losses, bounds, loss
from _measurements.relays_processes import Figures, times

from pubsub_lib import Timing
from pubsub_lib.relay.engine import SETTLING
from pubsub_lib.sync.server import MAX_PAUSE

GOOD = Loss(alone=False, away=0.0, fulls=0, deltas=1, reads=0, worst=6.0, least=0.5)
ALONE = Loss(alone=True, away=4.0, fulls=0, deltas=1, reads=0, worst=9.0, least=0.25)


def losses(*each: Loss) -> Losses:
    """Those of one end of a relay."""
    made = Losses(Bounds(several=6.5, alone=5.5))
    made.add(each)
    return made


def test_loss_is_the_difference_of_the_figures() -> None:
    old = Figures(("a",), 3, {"t0": 5, "t1": 7}, False, 9.0, 0.1, 0.0, 0.0, 10, 2)
    new = Figures(("b",), 4, {"t0": 6, "t1": 7, "t2": 1}, False, 3.0, 0.2, 0.0, 0.0, 20, 2)
    assert loss(old, new, 1.5, alone=True) == Loss(True, 1.5, 1, 1, 0, 3.0, 0.2)
    again = msgspec.structs.replace(new, deltas={"t0": 7, "t1": 7}, reads=4)
    assert loss(old, again, 0.0, alone=False) == Loss(False, 0.0, 1, 2, 2, 3.0, 0.2)


def test_good_losses_are_met_and_their_extremes_printed() -> None:
    made = losses(GOOD, ALONE)
    finding = made.finding("kills")
    assert finding.met
    assert (made.several, made.alone, made.beyond, made.least) == (6.0, 9.0, 5.0, 0.25)
    assert "0 full syncs" in finding.text
    assert finding.text.endswith("met")


@pytest.mark.parametrize(
    "bad",
    [
        {"fulls": 1},
        {"reads": 1},
        {"deltas": 2},
        {"worst": 6.6},
        {"least": -0.001},
        {"alone": True, "away": 0.4, "worst": 6.0},
    ],
)
def test_each_requirement_that_is_missed_is_found(bad: dict[str, float]) -> None:
    made = losses(GOOD, ALONE, msgspec.structs.replace(GOOD, **bad))
    assert not made.finding("kills").met
    assert made.finding("kills").text.endswith("MISSED")
    assert made.often == (bad.get("deltas", 0) > 1)


def test_bounds_grow_with_the_times() -> None:
    timing = Timing(**times(1.0))
    found = bounds(timing, 2.0)
    assert found.several == pytest.approx(3.0 + 0.2 + 0.2 + (0.3 + 0.2 + 0.2 + 0.3 + 2.0))
    assert found.alone == pytest.approx(
        1.0 + 0.2 + 0.2 + SETTLING + MAX_PAUSE + timing.max_sync_backoff + (0.3 + 0.2 + 0.2 + 0.3 + 2.0)
    )
    assert bounds(timing, 3.0).several == pytest.approx(found.several + 1.0)
