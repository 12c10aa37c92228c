"""Draws the faults of a run from its seed. The same arguments give the same faults, in every process. No I/O."""

import random
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from _chaos.plan import DEFAULT, KINDS, Cast, Fault, Kind


class Draw(msgspec.Struct, frozen=True):
    """How one kind of fault is drawn: its share of all faults, the range of its duration in seconds, and the possible
    details.
    """

    weight: int
    shortest: float
    longest: float
    details: tuple[str, ...] = ("",)


DRAWS: Final[Mapping[Kind, Draw]] = {
    "kill": Draw(30, 0.0, 3.0),
    "pause": Draw(30, 0.1, 4.0),
    "cut": Draw(20, 0.1, 4.0),
    "cut_database": Draw(15, 0.1, 4.0),
    "commit": Draw(15, 0.5, 2.0, ("before", "after")),
    "slow": Draw(15, 3.0, 6.0),
    "storm": Draw(8, 1.0, 6.0, ("leave", "kill")),
    "files": Draw(4, 4.0, 10.0),
    "disk": Draw(4, 0.5, 5.0),
    "garbage": Draw(8, 1.0, 6.0),
    "imposter": Draw(6, 1.0, 5.0),
    "clock": Draw(15, 2.0, 8.0, ("ahead", "behind")),
    "lie": Draw(15, 4.0, 12.0, ("publisher", "worker")),
}
PAUSE: Final = 0.2
"""Minimum number of seconds between two faults of one victim."""
TRIES: Final = 100
"""Maximum number of draws for one fault. In a short run with many faults there may be no room for further ones."""


def drawn(seed: int, seconds: float, number: int, cast: Cast, kinds: Collection[Kind] = DEFAULT) -> list[Fault]:
    """Up to ``number`` faults in the order of their begins; faults of one victim do not overlap, and all end before
    ``seconds``. Fewer when there is no room for more.
    """
    rng = random.Random(f"chaos faults {seed}")
    possible = [kind for kind in KINDS if kind in kinds and cast.victims(kind)]
    if not possible:
        return []
    weights = [DRAWS[kind].weight for kind in possible]
    taken: dict[str, list[Fault]] = {}
    for _ in range(number):
        for _ in range(TRIES):
            (kind,) = rng.choices(possible, weights)
            fault = _draw(rng, kind, seconds, cast)
            before = taken.setdefault(fault.victim, [])
            if fault.end <= seconds and all(_apart(fault, other) for other in before):
                before.append(fault)
                break
        else:
            break
    return sorted(fault for faults in taken.values() for fault in faults)


def _draw(rng: random.Random, kind: Kind, seconds: float, cast: Cast) -> Fault:
    draw = DRAWS[kind]
    lasts = min(rng.uniform(draw.shortest, draw.longest), seconds / 2)
    # Milliseconds, so that a plan is the same after it was written as text.
    at, victim, detail = rng.uniform(0.0, seconds), rng.choice(cast.victims(kind)), rng.choice(draw.details)
    return Fault(round(at, 3), kind, victim, round(lasts, 3), detail)


def _apart(one: Fault, other: Fault) -> bool:
    return one.end + PAUSE <= other.at or other.end + PAUSE <= one.at
