"""Runs a scenario under many schedules: the product's modules get the controlled primitives for that time."""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Final

from tests.scale import QUICK, scaled
from tests.scheduler.choices import Bounded, Chance, chooser_of
from tests.scheduler.primitives import SimpleQueue as ControlledQueue
from tests.scheduler.primitives import Threading, Time
from tests.scheduler.scheduler import Chooser, Failure, Scheduler

PRODUCT: Final = (
    "pubsub_lib.", "pubsub_memory.", "pubsub_nats.", "pubsub_pgnotify.", "pubsub_redis.", "pubsub_sql.", "pubsub_zmq.",
)  # fmt: skip
REPLAY: Final = "PUBSUB_LIB_SCHEDULE"
"""Environment variable: the schedule of a report. Every explored scenario then runs once, by this schedule."""
SEEDS: Final = "PUBSUB_LIB_SCHEDULE_SEEDS"
"""Environment variable: ``1000:3000`` runs these seeds in place of a scenario's own."""

DEEP: Final = 1 if QUICK else 2
"""Deviations of the scenarios that have thousands of schedules with two: all of these run with ``tools/test --all``."""

Scenario = Callable[["World"], object]


class World:
    """The argument of a scenario: the scheduler, and primitives for its own threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.threading = Threading(scheduler)
        self.check = scheduler.check
        self.fail = scheduler.fail
        self.sleep = scheduler.sleep
        self.rng: Final = random.Random(scheduler.chooser.seed)
        """For random decisions of a scenario; another one for each seed."""
        self._spawned = 0
        self._replaced: list[tuple[ModuleType, str, object]] = []

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.scheduler.now

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Without choices: for the steps that prepare the scenario."""
        self.scheduler.calm = True
        yield
        self.scheduler.calm = False

    def replace(self, module: str, attribute: str, double: object) -> None:
        """Let a module use a double until this run has ended. A name that the module does not have is left out."""
        found = sys.modules[module]
        if attribute in vars(found):
            self._replaced.append((found, attribute, vars(found)[attribute]))
            setattr(found, attribute, double)

    def put_back(self) -> None:
        """Undo ``replace``."""
        while self._replaced:
            module, attribute, original = self._replaced.pop()
            setattr(module, attribute, original)

    def spawn(self, target: Callable[..., object], *args: Any, name: str = "") -> Any:
        """Start a controlled thread; ``join`` it."""
        self._spawned += 1
        thread = self.threading.Thread(target=target, args=args, name=name or f"{target.__name__}-{self._spawned}")
        thread.start()
        return thread

    def together(self, *targets: Callable[[], object]) -> None:
        """Run these at the same time, each in its own thread, and wait for their ends."""
        for thread in [self.spawn(target) for target in targets]:
            thread.join()

    def until(self, done: Callable[[], object], what: str, maximum: float) -> None:
        """Wait until ``done()``, for at most ``maximum`` virtual seconds; else the run fails: ``what`` did not come."""
        came = self.scheduler.block(what, lambda: bool(done()), self.now + maximum)
        self.check(came, f"{what} did not come within {maximum:g} s")


def explore(
    scenario: Scenario,
    *,
    deviations: int | None = None,
    seeds: Collection[int] = (),
    maximum: int = 20_000,
    lines: Collection[ModuleType] = (),
    lags: bool = False,
) -> int:
    """Run a scenario under every schedule with at most ``deviations``, and under each seed's; in a quick run under
    those of the first half. Returns the number of runs.

    ``lines``: modules of which each line is a synchronisation point. ``lags``: see Scheduler. Raises Failure, whose
    schedule repeats the run: ``PUBSUB_LIB_SCHEDULE="seed 17" pytest -k NAME``; AssertionError when more than
    ``maximum`` runs would be needed.
    """

    def one(chooser: Chooser, about: str) -> None:
        try:
            run(scenario, chooser, lines=lines, lags=lags)
        except Failure as failure:
            failure.add_note(f"{about}; repeat it: {REPLAY}='{failure.schedule}' pytest -k ...")
            raise

    if REPLAY in os.environ:
        one(chooser_of(os.environ[REPLAY]), "repeated")
        return 1
    seeds = _other_seeds([*seeds][: scaled(max(10, len(seeds) // 2))])
    runs = 0
    branch = Bounded([]) if deviations is not None else None
    while branch is not None:
        one(branch, f"run {runs}, at most {deviations} deviations")
        runs += 1
        assert runs <= maximum, f"more than {maximum} runs with {deviations} deviations; make the scenario smaller"
        branch = branch.following(deviations or 0)
    for seed in seeds:
        one(Chance(seed), f"seed {seed}")
    return runs + len(seeds)


def _other_seeds(seeds: Collection[int]) -> Collection[int]:
    first, _, end = os.environ.get(SEEDS, "").partition(":")
    return range(int(first), int(end)) if seeds and end else seeds


def run(scenario: Scenario, chooser: Chooser, *, lines: Collection[ModuleType] = (), lags: bool = False) -> World:
    """Run a scenario once. Raises Failure."""
    files = [module.__file__ for module in lines if module.__file__ is not None]
    scheduler = Scheduler(chooser, lines=files, lags=lags)
    world = World(scheduler)
    with controlled(scheduler, world.threading):
        try:
            scheduler.run(lambda: scenario(world))
        finally:
            world.put_back()
    return world


@lru_cache(maxsize=1)
def _product(number: int, newest: str) -> list[ModuleType]:
    """The product's modules, found again after an import, which changes the number of modules or the newest one.

    A scenario runs thousands of times, and a test process has thousands of modules.
    """
    return [module for name, module in list(sys.modules.items()) if name.startswith(PRODUCT)]


@contextmanager
def controlled(scheduler: Scheduler, fake: Threading) -> Iterator[None]:
    """During the block the product's modules use controlled primitives. Names bound earlier (default arguments such
    as ``now=time.monotonic``) are not replaced: a scenario passes them.
    """
    replaced: list[tuple[ModuleType, str, object]] = []
    clock = Time(scheduler)
    doubles: list[tuple[object, object]] = [
        (threading, fake),
        (time, clock),
        (SimpleQueue, lambda: ControlledQueue(scheduler)),
    ]
    try:
        for module in _product(len(sys.modules), next(reversed(sys.modules))):
            for attribute in ("threading", "time", "SimpleQueue"):
                real = vars(module).get(attribute)
                if real is None:
                    continue
                for original, double in doubles:
                    if real is original:
                        replaced.append((module, attribute, real))
                        setattr(module, attribute, double)
        yield
    finally:
        for module, attribute, original in replaced:
            setattr(module, attribute, original)
