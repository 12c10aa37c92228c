"""Run one seed and return its result."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pubsub_lib.errors import PubSubError
from simulator.invariants import Violation
from simulator.kernel import Kernel
from simulator.plan import Cuts, draw
from simulator.tree_world import TreeWorld
from simulator.world import World


class Result(msgspec.Struct, frozen=True):
    """The result of one seed. ``invariant`` is "" when every invariant held."""

    seed: int
    invariant: str
    what: str
    counts: Mapping[str, int]
    syncs: Mapping[str, int]
    struck: Mapping[str, int]
    """"kill" or "pause", kind of process, "before" step -> how often."""
    reached: Sequence[tuple[str, str]]
    """Kinds of process and steps where a fault could have been injected."""
    steps: int
    transactions: int
    ended: float
    trace_hash: str = ""


def run_seed(
    seed: int,
    cuts: Cuts = Cuts(),  # noqa: B008 - frozen
    *,
    tracing: bool = False,
    show: Callable[[str], None] | None = None,
) -> Result:
    """Run one seed. An exception in it is reported as a violation too and is not raised."""
    kernel = Kernel(seed, tracing=tracing, show=show)
    world = (TreeWorld if cuts.trees else World)(draw(seed, cuts), kernel)
    invariant = what = ""
    try:
        world.run()
    except Violation as violation:
        invariant, what = violation.invariant, str(violation)
    except (PubSubError, LookupError, ValueError, TypeError, AttributeError, AssertionError, RuntimeError) as error:
        invariant, what = "crash", f"crash: {type(error).__name__}: {error} {_place(error)}"
    if invariant:
        kernel.trace("monitor", "violation", what)
    return Result(
        seed=seed,
        invariant=invariant,
        what=what,
        counts=world.counts,
        syncs=world.monitor.syncs,
        struck=world.nemesis.struck,
        reached=tuple(world.nemesis.reached),
        steps=kernel.steps,
        transactions=world.history.transactions,
        ended=kernel.now,
        trace_hash=kernel.trace_hash if kernel.tracing else "",
    )


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"({trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno})"
