"""The publishers and workers of a seed that lie, and when. Only runs with ``--liars`` have them.

Their random numbers are their own: everything else of a seed is as without liars, but the faults last longer.
"""

import random
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from simulator.plan import Cuts, Plan

LIES: Final = (
    "forged_link", "forged_digest", "forged_unordered", "altered", "withheld", "hello_ahead", "hello_another",
    "hello_behind", "hello_digest", "hello_covered", "replayed", "rolled_back",
)  # fmt: skip
"""Every kind of lie, by the name that ``--without`` takes."""
NEED_LEASE: Final = ("hello_covered",)
"""Has no effect without a lease."""
LONGER: Final = 12.0
"""Seconds that the faults last longer: three contradictions by verifications alone take that long."""


class LiarPlan(msgspec.Struct, frozen=True):
    """One liar."""

    lies: tuple[str, ...]
    identity: str
    """``own``: a UUID without a lease. ``changing``: a new one for each message, also as a worker. ``leased``: a UUID
    with a lease in the directory. ``stolen``: that of a service.
    """
    starts_at: float
    ends_at: float
    period: float
    """Seconds between two lies."""


def lying(plan: "Plan", cuts: "Cuts") -> "Plan":
    """The plan with liars."""
    rng = random.Random(f"{plan.seed} liars")
    calm = plan.calm if cuts.calm is not None else plan.calm + LONGER
    liars = [_liar(rng, calm, bool(plan.services)) for _ in range(rng.choice((1, 1, 2)))]
    kept = [msgspec.structs.replace(each, lies=tuple(lie for lie in each.lies if lie not in cuts.without))
            for each in liars]  # fmt: skip
    return msgspec.structs.replace(plan, calm=calm, liars=tuple(each for each in kept if each.lies))


def _liar(rng: random.Random, calm: float, services: bool) -> LiarPlan:
    share = rng.choice((0.0, 0.1, 0.3, 0.6))
    lies = tuple(lie for lie in LIES if rng.random() < share) or (rng.choice(LIES),)
    identity = rng.choice(("leased", "stolen") if lies == NEED_LEASE else ("own", "changing", "leased", "stolen"))
    starts_at = rng.uniform(0.0, calm * 0.4)
    return LiarPlan(
        lies=lies,
        identity=identity if services or identity != "stolen" else "own",
        starts_at=starts_at,
        ends_at=rng.uniform(starts_at, calm),
        period=rng.choice((0.05, 0.2, 0.8)),
    )
