"""Journals as an audit reads them while they are written: each file ends at the time of its own reading."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pubsub_lib.audit.settings import AuditSettings, Listing
from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import BEGIN, MONO, SILENCE, WINDOW, Generator
from tests.unit.audit.oracle import Oracle, Verdict

HARMLESS = {"ok", "excused", "pending", "repaired", "reordered", "duplicate_dropped", "late"}


def read_while_growing(rows: Sequence[Row], rng: random.Random, took: int) -> tuple[list[Row], Listing]:
    """What is read of journals that are listed at some time, each of them within ``took`` after that time. A run that
    begins after the listing is not read.
    """
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda each: each.number):
        runs[row.run].append(row)
    last = max(row.mono for row in rows) - MONO
    listed = rng.randrange(BEGIN + 5000, min(last, BEGIN + 80_000))
    found: list[Row] = []
    for _, of_run in sorted(runs.items()):
        until = listed + rng.randrange(took + 1)
        times = [row.mono - MONO for row in of_run]
        if times[0] <= listed:
            found += of_run[: sum(time <= until for time in times)]
    return found, Listing(listed, took)


def growing(seeds: Sequence[int], took: int) -> Iterator[tuple[int, list[Row], list[Row], Listing]]:
    """Seed, all rows without the store's, those that are read, and when the files were listed."""
    for seed in seeds:
        rng = random.Random(f"growing {seed}")
        every = Generator(random.Random(seed), 0.3 * (seed % 2), f"g{seed}").rows()
        rows = [row for row in every if row.side != "store"]
        yield seed, rows, *read_while_growing(rows, rng, took)


def oracle(rows: Sequence[Row], settings: AuditSettings, listed: Listing | None = None) -> Oracle:
    given = None if listed is None else (listed.wall, listed.took)
    return Oracle(rows, WINDOW, settings.grace, settings.bound, SILENCE, (), given)


def accused(one: Oracle) -> set[tuple[object, ...]]:
    """What is not harmless: deliveries, and unexpected receipts. Of a change that was read as unpublished, and has a
    publication, the point decides.
    """
    found = {of_change(row) for row in one.delivery() if row.verdict not in HARMLESS}
    return found | {tuple(row) for row in one.strays()}


def belated(one: Oracle) -> set[tuple[object, ...]]:
    """Deliveries that came at last, so late that they had counted as lost before."""
    return {of_change(row) for row in one.delivery() if row.verdict == "late"}


def of_change(row: Verdict) -> tuple[object, ...]:
    """A row's replica and change."""
    message = (row.position, row.nonce) if row.position else (row.uuid, row.sequence)
    return (row.name, row.topic, *message)
