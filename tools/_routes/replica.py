"""The process of one controller: its replica follows the topics, and gives an account of itself when it is asked."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from _routes import dump
from _routes.messages import Away, Finish, Finished, Followed, Message, Synced
from _routes.plan import ReplicaTask
from pubsub_lib import Event, Replica, Settings
from pubsub_lib.core.model import Record

FIRST_SYNC = 600.0
"""Seconds; longer than the first sync of any set that this was made for."""
TELL_EVERY = 50
"""Changes between two signs of life."""


class Versions:
    """Which versions were heard of. A version is the position of one change, so it stands for its key, too."""

    def __init__(self) -> None:
        self._heard = bytearray(1 << 20)

    def again(self, version: int) -> bool:
        """Note a version; True when it had been noted before."""
        if version >= len(self._heard):
            self._heard.extend(bytes(version))
        before, self._heard[version] = self._heard[version], 1
        return bool(before)


class Watch:
    """The handler: counts its calls, those for one version, and the latency of followed changes."""

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell
        self._versions = Versions()
        self.calls = 0
        self.twice = 0
        self.latencies: list[tuple[float, float]] = []
        """(written at, latency) of every followed change."""

    def __call__(self, event: Event) -> None:
        """One change. A full sync's have no stamp: they are what was there, not what was followed."""
        self.calls += 1
        # A delete that a full sync finds has no version: nobody knows when it was.
        if event.version is not None and self._versions.again(event.version):
            self.twice += 1
        if not event.written_at:
            return
        self.latencies.append((event.written_at, time.time() - event.written_at))
        if len(self.latencies) % TELL_EVERY == 0:
            self._tell(Followed(len(self.latencies), self.twice))


def run(task: ReplicaTask, tell: Callable[[Message], None]) -> None:
    """Follow until stdin says ``Finish`` or ends. Raises PubSubError, OSError for a dump that finds no room."""
    watch = Watch(tell)
    settings = msgspec.structs.replace(Settings.from_file(task.configuration), replica_name=task.name)
    began = time.monotonic()
    with Replica(settings, task.topics or None) as replica:
        replica.on(None, watch)
        replica.wait_synced(FIRST_SYNC)
        fulls = sum(replica.status().counters.fulls.values())
        tell(Synced(time.monotonic() - began, len(replica.records()), resident(), fulls))
        line = sys.stdin.readline()
        if not line:
            return  # whoever started this process is gone
        order = msgspec.json.decode(line, type=Finish)
        replica.wait_handled(order.position, order.timeout)
        sabotaged = sabotage(replica) if task.sabotage else None
        tell(account(replica, watch, order, sabotaged))


def sabotage(replica: Replica) -> tuple[str, str]:
    """Change the value of one object in the replica's memory, as a bit that flips there would: its version, and the
    digest that the replica keeps, stay as they were. Returns its table and key.

    The library has no way to do this, and none is wanted: so the tool reaches inside.
    """
    record = min(replica.records(), key=lambda each: (each.table, each.key))
    # A topic has only the tables of which it holds an object.
    tables = [topic.tables.get(record.table, {}) for topic in replica._engine.state.cache._topics.values()]
    (entry,) = [objects[record.key] for objects in tables if record.key in objects]
    entry.value = b'{"sabotaged":true}'
    return record.table, record.key


def account(replica: Replica, watch: Watch, order: Finish, sabotaged: tuple[str, str] | None = None) -> Finished:
    """Write the dump, and sum up."""
    memory = resident()
    records = [Record(each.table, each.key, each.version, each.json) for each in replica.records()]
    dump.write(Path(order.dump), records)
    status = replica.status()
    undisturbed = sorted(latency for at, latency in watch.latencies if not within(at, order.away))
    return Finished(
        objects=len(records),
        changes=len(watch.latencies),
        links=status.counters.applied,
        calls=watch.calls,
        twice=watch.twice,
        conflated=status.handlers.conflated,
        duplicates=status.counters.old,
        holes=status.sequences.holes,
        deltas=sum(status.counters.deltas.values()),
        fulls=sum(status.counters.fulls.values()),
        faults=status.faults.guarded + status.faults.mismatches,
        latency_p50=percentile(undisturbed, 50),
        latency_p99=percentile(undisturbed, 99),
        max_latency=max((latency for _, latency in watch.latencies), default=None),
        memory=memory,
        sabotaged=sabotaged,
    )


def within(at: float, spans: Sequence[Away]) -> bool:
    """Whether a moment lies in one of these spans."""
    return any(begin <= at <= end for begin, end in spans)


def percentile(ordered: list[float], percent: int) -> float | None:
    """The smallest value that at least so many percent do not exceed (nearest rank); None of nothing."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
