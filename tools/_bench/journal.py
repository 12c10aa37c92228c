"""The cost of journals: bursts of 10-change transactions with journals, compared with bursts without journals."""

import gc
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from _children import Children, Line
from _processes import free_port

from _bench.burst import SEED, TOGETHER
from _bench.measure import BenchError, Log, Row, Sizes, in_turns, row
from _bench.payload import Plan, plan
from _bench.replicas import LOOK, check, settings, started
from _bench.store import PlannedStore
from pubsub_lib import Replica, Settings
from pubsub_lib.journal import JournalSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.publisher.publisher import Publisher

RATE = 0.85
"""Minimum rate with journals, relative to the rate without."""
WORK = 1.15
"""Maximum processor time with journals, relative to the time without."""
CHANGES = 10
PEER = "the same without journals"


class Cost(msgspec.Struct, frozen=True):
    """Of one burst: applied changes per second, and processor time of both processes in nanoseconds per change."""

    rate: float
    work: float


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Measure with journals and without, in turns."""
    planned = plan("bench", sizes.keys, sizes.changes // CHANGES, CHANGES, SEED)
    gc.collect()
    gc.freeze()  # as in the bursts
    costs: list[tuple[Cost, Cost]] = list(
        in_turns(rounds, lambda: measure(planned, journals=True), lambda: measure(planned, journals=False), log)
    )
    title = f"burst of {CHANGES}-change transactions with journals"
    rates = [(ours.rate, peer.rate) for ours, peer in costs]
    works = [(ours.work, peer.work) for ours, peer in costs]
    return [
        row("journal", title, "changes/s", PEER, rates, "least", RATE),
        row("journal-work", f"{title}: processor time of both processes", "ns/change", PEER, works, "most", WORK),
    ]


def measure(planned: Plan, *, journals: bool) -> Cost:
    """One burst. Journals are written to a temporary folder; no journal is converted to Parquet meanwhile."""
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder, Children() as children:
        port = free_port()
        given = settings(port)
        if journals:
            kept = JournalSettings(folder, roll_bytes=1 << 40, to_parquet=False)
            given = msgspec.structs.replace(given, journal=kept)
        publisher = children.fork(publish, given, planned)
        publisher.receive()
        replica = children.fork(replicate, given, planned)
        replica.receive()
        publisher.send()
        begun = publisher.receive()
        ended, of_replica = replica.receive()
        publisher.send()
        of_publisher = publisher.receive()
        replica.receive()
        for each in (publisher, replica):
            each.receive()  # its journal is closed
        if journals:
            check_records(Path(folder), len(planned.links))
        rate = planned.changes / float(ended - begun)
        return Cost(rate, (of_publisher + of_replica) / planned.changes * 1e9)


def check_records(folder: Path, links: int) -> None:
    """Raises BenchError unless the journals have every link as sent and as received: a journal that loses records is
    faster.
    """
    found = find([folder])
    rows = (row for path in (*found.parquet, *found.append) for row in read(path) if row.kind == "data")
    outcomes = Counter(row.outcome for row in rows)
    sent, received = outcomes["sent"], outcomes["applied"] + outcomes["waiting"]
    if (sent, received) != (links, links):
        raise BenchError(f"the journals have {sent} sent and {received} received links of {links}; records were lost")


def publish(line: Line, given: Settings, planned: Plan) -> None:
    """As in the bursts. Sends the start time, and then the processor time until everything was applied, and the end
    of the journal.
    """
    store = PlannedStore([planned])
    with Publisher(given, store) as publisher:
        line.send()
        line.wait()
        store.commit()
        together = max(1, TOGETHER // len(planned.links[0].changes))
        used, begun = time.process_time(), time.monotonic()
        for first in range(0, len(planned.links), together):
            publisher.publish(planned.links[first : first + together])
        line.send(begun)
        line.wait()
        line.send(time.process_time() - used)
    line.send()


def replicate(line: Line, given: Settings, planned: Plan) -> None:
    """As in the bursts. Sends the time and processor time when everything was applied, then the ends of
    the check and of the journal.
    """
    store = PlannedStore([planned])
    with Replica(given, topics=[planned.topic], store=store) as replica:
        started(replica)
        line.send()
        store.commit()
        used = time.process_time()
        while replica.status().chains[planned.topic].known != planned.end.point:
            time.sleep(LOOK)
        line.send((time.monotonic(), time.process_time() - used))
        check(replica, [planned])
        line.send()
    line.send()
