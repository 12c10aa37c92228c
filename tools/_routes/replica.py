"""The process of one replica: follows its topics by polling, and gives an account of itself when it is asked."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from _routes import dump
from _routes.messages import Finish, Finished, Followed, Message, Synced
from _routes.plan import ReplicaTask
from pubsub_lib import Event, Replica, Settings

FIRST_SYNC = 600.0
"""Seconds; longer than the first sync of any set that this was made for."""
TELL_EVERY = 200
"""Changes between two signs of life."""


class Watch:
    """The handler: counts followed changes, measures their latency, and dies at the planned one."""

    def __init__(self, die_at: int, tell: Callable[[Message], None]) -> None:
        self._die_at = die_at
        self._tell = tell
        self.latencies: list[float] = []

    def __call__(self, event: Event) -> None:
        """One change. A full sync's have no stamp: they are what was there, not what was followed."""
        if not event.written_at:
            return
        self.latencies.append(time.time() - event.written_at)
        if len(self.latencies) == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(self.latencies) % TELL_EVERY == 0:
            self._tell(Followed(len(self.latencies)))


def run(task: ReplicaTask, tell: Callable[[Message], None]) -> None:
    """Follow until stdin says ``Finish`` or ends. Raises PubSubError, OSError for a dump that finds no room."""
    watch = Watch(task.die_at, tell)
    settings = Settings(store_url=task.url, topics=task.topics, timing=task.timing)
    began = time.monotonic()
    with Replica(settings) as replica:
        replica.on(None, watch)
        replica.wait_synced(FIRST_SYNC)
        tell(Synced(time.monotonic() - began, len(replica.records()), resident()))
        line = sys.stdin.readline()
        if not line:
            return  # whoever started this process is gone
        order = msgspec.json.decode(line, type=Finish)
        replica.wait_handled(order.position, order.timeout)
        tell(account(replica, watch, Path(order.dump)))


def account(replica: Replica, watch: Watch, to: Path) -> Finished:
    """Write the dump, and sum up."""
    memory = resident()
    records = replica.records()
    dump.write(to, records)
    status = replica.status()
    latencies = sorted(watch.latencies)
    return Finished(
        objects=len(records),
        changes=len(latencies),
        links=status.counters.applied,
        conflated=status.handlers.conflated,
        duplicates=status.counters.old,
        holes=status.sequences.holes,
        deltas=sum(status.counters.deltas.values()),
        fulls=sum(status.counters.fulls.values()),
        faults=status.faults.guarded + status.faults.mismatches,
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        memory=memory,
    )


def percentile(ordered: list[float], percent: int) -> float | None:
    """The smallest value that at least so many percent do not exceed (nearest rank); None of nothing."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
