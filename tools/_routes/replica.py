"""The process of one controller: its replica follows the topics, and reports its figures at the end."""

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
"""Seconds; longer than the first sync of any supported set."""
REPORT_EVERY = 50
"""Number of changes between two progress messages."""


class Versions:
    """The received versions. A version is the position of one change, so it also identifies the key."""

    def __init__(self) -> None:
        self._received = bytearray(1 << 20)

    def again(self, version: int) -> bool:
        """Note a version. Returns True when it was noted before."""
        if version >= len(self._received):
            self._received.extend(bytes(version))
        before, self._received[version] = self._received[version], 1
        return bool(before)


class Watch:
    """The handler: counts its calls and repeated versions, and measures the latency of followed changes."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._versions = Versions()
        self.calls = 0
        self.twice = 0
        self.latencies: list[tuple[float, float]] = []
        """(written at, latency) of every followed change."""

    def __call__(self, event: Event) -> None:
        """Count one change. Changes of a full sync have no timestamp, so they have no latency."""
        self.calls += 1
        # A delete that a full sync finds has no version, because its position is unknown.
        if event.version is not None and self._versions.again(event.version):
            self.twice += 1
        if not event.written_at:
            return
        self.latencies.append((event.written_at, time.time() - event.written_at))
        if len(self.latencies) % REPORT_EVERY == 0:
            self._send(Followed(len(self.latencies), self.twice))


def run(task: ReplicaTask, send: Callable[[Message], None]) -> None:
    """Follow until ``Finish`` is received or stdin is closed. Raises PubSubError, and OSError for a full disk."""
    watch = Watch(send)
    settings = msgspec.structs.replace(Settings.from_file(task.configuration), replica_name=task.name)
    began = time.monotonic()
    with Replica(settings, task.topics or None) as replica:
        replica.on(None, watch)
        replica.wait_synced(FIRST_SYNC)
        fulls = sum(replica.status().counters.fulls.values())
        send(Synced(time.monotonic() - began, len(replica.records()), resident(), fulls))
        line = sys.stdin.readline()
        if not line:
            return  # the parent process has ended
        order = msgspec.json.decode(line, type=Finish)
        replica.wait_handled(order.position, order.timeout)
        sabotaged = sabotage(replica) if task.sabotage else None
        send(account(replica, watch, order, sabotaged))


def sabotage(replica: Replica) -> tuple[str, str]:
    """Change the value of one object in the replica's memory, as a flipped bit would: the object's version and the
    replica's digest stay unchanged. Returns the object's table and key.

    The library intentionally has no interface for this, so the tool uses its private attributes.
    """
    record = min(replica.records(), key=lambda each: (each.table, each.key))
    # A topic has only the tables that hold an object.
    topics = replica._engine.read(lambda state: list(state.cache._topics.values()))
    tables = [topic.tables.get(record.table, {}) for topic in topics]
    (entry,) = [objects[record.key] for objects in tables if record.key in objects]
    entry.value = b'{"sabotaged":true}'
    return record.table, record.key


def account(replica: Replica, watch: Watch, order: Finish, sabotaged: tuple[str, str] | None = None) -> Finished:
    """Write the dump, and collect the figures."""
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
        notifications=status.driver.get("notifications"),
        latency_p50=percentile(undisturbed, 50),
        latency_p99=percentile(undisturbed, 99),
        max_latency=max((latency for _, latency in watch.latencies), default=None),
        memory=memory,
        publishers=replica.publishers,
        sabotaged=sabotaged,
    )


def within(at: float, spans: Sequence[Away]) -> bool:
    """Whether a time is in one of these spans."""
    return any(begin <= at <= end for begin, end in spans)


def percentile(ordered: list[float], percent: int) -> float | None:
    """The smallest value that at least ``percent`` percent do not exceed (nearest rank); None for an empty list."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


def resident() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
