"""The relays of a seed, and who may listen to whom. Only runs with ``--trees`` have them.

Their random numbers are their own: everything else of a seed is as without relays, except that replicas follow named
topics, and that some kinds of fault are left out.
"""

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from simulator.plan import Cuts, Plan, ReplicaPlan

TREE_FAULTS: Final = ("cut", "stuck", "move", "fork")
"""Kinds of fault of a tree. ``cut``: between a relay and one below it. ``stuck``: a relay gets nothing from above or
from the database, and those below still get its messages. ``move``: replicas and relays change their parents.
``fork``: a relay is stuck while the database is restored, and replicas move to it."""
LONGER: Final = 8.0
"""Seconds that the faults last longer."""
NOT_IN_TREES: Final = ("foreign", "verify", "blind", "refuse", "partition", "flapping")
"""Kinds of fault that are tested without relays."""


class TreePlan(msgspec.Struct, frozen=True):
    """The relays of one run."""

    levels: tuple[tuple[str, ...], ...]
    """The relays by level; those of the first read the database and listen to the services."""
    parents: Mapping[str, tuple[str, ...]]
    """Of each relay of a lower level, and of each replica: whom it may listen to, the best first."""

    @property
    def relays(self) -> tuple[str, ...]:
        """All relays, those of the first level first."""
        return tuple(name for level in self.levels for name in level)


def rooted(plan: "Plan", cuts: "Cuts") -> "Plan":
    """The plan with relays."""
    rng = random.Random(f"{plan.seed} tree")
    levels: list[tuple[str, ...]] = []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        first = sum(map(len, levels))
        levels.append(tuple(f"relay{first + number}" for number in range(rng.choice((1, 2, 2)))))
    parents: dict[str, tuple[str, ...]] = {}
    mutual = rng.random() < 0.4
    for above, level in pairwise(levels):
        for name in level:
            some = [*rng.sample(above, len(above))]
            if mutual and len(level) > 1:  # two that may listen to each other
                some.insert(rng.randrange(len(some) + 1), next(each for each in level if each != name))
            parents[name] = tuple(some)
    for number in range(len(plan.replicas)):
        parents[f"replica{number}"] = tuple(rng.sample(levels[-1], len(levels[-1])))
    share = rng.choice((0.2, 0.4, 0.7))
    struck = [kind for kind in (*TREE_FAULTS, "restore") if random.Random(f"{plan.seed} {kind} tree").random() < share]
    faults = [kind for kind in plan.faults if kind not in NOT_IN_TREES]
    faults += [kind for kind in struck if plan.seed % 4 and kind not in (*faults, *cuts.without)]
    return msgspec.structs.replace(
        plan,
        faults=tuple(faults),
        calm=plan.calm + LONGER if cuts.calm is None else plan.calm,
        services=plan.services or (0.0,),
        replicas=tuple(_named(each, plan.topics) for each in plan.replicas),
        tree=TreePlan(tuple(levels), parents),
    )


def _named(replica: "ReplicaPlan", topics: tuple[str, ...]) -> "ReplicaPlan":
    chosen = topics if "" in replica.topics else replica.topics
    return msgspec.structs.replace(replica, topics=chosen, polling=False)
