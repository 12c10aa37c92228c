"""A publisher service, two relays, a writer and replicas below the relays, as processes under writes."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from _bench.measure import BenchError
from _children import Children, Forked
from _processes import poll

from _measurements.relays_processes import (
    PATIENCE,
    Figures,
    Relay,
    Service,
    Truth,
    figures_of,
    follow,
    joined,
    times,
    write,
)
from pubsub_lib import Timing
from pubsub_lib.core.timing import reconnection_bound


class RelayTree:
    """The processes. A subclass gives the replicas' files to ``start``."""

    def __init__(self, folder: Path, idle: float, stack: ExitStack) -> None:
        self.timing = Timing(**times(idle))
        self.truth = Truth()
        self.children = stack.enter_context(Children())
        self.origin = Service(folder, "api-1", idle, self.children)
        self.relays = [Relay(folder, name, idle, self.children, self.origin) for name in ("relay-1", "relay-2")]
        self.origin.configure()
        self.replicas: Sequence[Forked] = ()
        self._writer: Forked
        self._stack = stack

    def start(self, files: Sequence[Path], rate: float) -> None:
        """Start everything, with a replica for each of these files, and ``rate`` transactions a second."""
        # Forked before this process has threads.
        self.replicas = [self.children.fork(follow, file, self.truth) for file in files]
        self.origin.start()
        self._writer = self.children.fork(write, self.origin.config, self.truth, rate)
        self._writer.receive(PATIENCE)
        for relay in self.relays:
            self._stack.callback(relay.close)
            relay.connect()
            relay.start()
        for each in self.replicas:
            each.send("start")
            each.receive(PATIENCE)
        self._writer.send("start")

    def until(self, done: Callable[[Sequence[Figures]], bool], what: str, replicas: Sequence[Forked]) -> list[Figures]:
        """Wait until the figures of these replicas fit. Raises BenchError. The figures of the time until then."""
        seen: list[list[Figures]] = []

        def look() -> bool:
            seen.append(figures_of(replicas))
            return done(seen[-1])

        if not poll(look, PATIENCE):
            raise BenchError(f"the replicas {what}: {seen[-1]}")
        return [joined(each) for each in zip(*seen, strict=True)]

    def end(self) -> None:
        """Stop the writer and the replicas."""
        self.truth.stop.value = 1
        self._writer.receive(PATIENCE)
        for each in self.replicas:
            each.send("end")
            each.receive(PATIENCE)


def repaired(timing: Timing, sync: float) -> float:
    """Seconds until a replica that has connected again is repaired, when a sync takes ``sync`` seconds."""
    return reconnection_bound(timing, sync, timing.sync_interval + timing.sync_jitter)


def moved(timing: Timing, sync: float) -> float:
    """The largest staleness of a replica that goes from one parent to another."""
    return timing.stale_after + timing.reading_age + timing.round_trip + repaired(timing, sync)
