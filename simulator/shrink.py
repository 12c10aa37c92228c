"""Reduce a failing seed to the smallest run that still breaks the same invariant, as a command."""

from collections.abc import Callable, Iterator

import msgspec

from simulator.plan import Cuts, draw
from simulator.run import Result, run_seed

Run = Callable[[int, Cuts], Result]
MAX_RUNS = 120
"""Maximum number of runs of one shrinking."""


def shrink(seed: int, cuts: Cuts, invariant: str, run: Run = run_seed) -> Cuts:
    """Leave out fault kinds, participants, transactions and time, one after the other, while the same invariant
    breaks. Returns ``cuts`` itself when no part can be left out."""
    runs = 0
    smaller = True
    while smaller and runs < MAX_RUNS:
        smaller = False
        for candidate in _smaller(seed, cuts):
            runs += 1
            if run(seed, candidate).invariant == invariant:
                cuts, smaller = candidate, True
                break
            if runs >= MAX_RUNS:
                break
    return cuts


def _smaller(seed: int, cuts: Cuts) -> Iterator[Cuts]:
    plan = draw(seed, cuts)
    change = msgspec.structs.replace
    if plan.faults:
        yield change(cuts, without=(*cuts.without, *plan.faults))
        if len(plan.faults) > 3:
            half = plan.faults[: len(plan.faults) // 2]
            yield change(cuts, without=(*cuts.without, *half))
    lies = dict.fromkeys(lie for liar in plan.liars for lie in liar.lies)
    for kind in (*plan.faults, *lies):
        yield change(cuts, without=(*cuts.without, kind))
    for maximum in range(1, len(plan.replicas)):
        yield change(cuts, replicas=maximum)
    for maximum in range(len(plan.services)):
        yield change(cuts, services=maximum)
    for maximum in range(1, plan.writers):
        yield change(cuts, writers=maximum)
    if plan.ops > 1:
        yield change(cuts, ops=plan.ops // 2)
        yield change(cuts, ops=plan.ops * 4 // 5)
    if plan.calm > 1.0:
        yield change(cuts, calm=round(plan.calm * 0.6, 2))


def command(seed: int, cuts: Cuts, mutant: str = "") -> str:
    """The command that shows this run."""
    words = [f"tools/simulate --seed {seed}"]
    if cuts.without:
        words.append(f"--without {','.join(cuts.without)}")
    for name in ("ops", "writers", "services", "replicas", "calm"):
        value = getattr(cuts, name)
        if value is not None:
            words.append(f"--{name} {value}")
    if cuts.liars:
        words.append("--liars")
    if cuts.trees:
        words.append("--trees")
    if mutant:
        words.append(f"--mutant {mutant}")
    return " ".join([*words, "--trace"])
