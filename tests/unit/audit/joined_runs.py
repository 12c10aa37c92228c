"""Judges joined runs: the oracle's verdicts of a run, the wrong accusations among them, and the tally of many runs."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.core.transitions import Trigger
from pubsub_lib.journal.reading import find, read
from tests.unit.audit.conftest import write_cases
from tests.unit.audit.joined import BOUND, GRACE, SILENCE, WINDOW, World
from tests.unit.audit.joined_parts import DROPPED, STALE, TWICE, Modelled, Stored
from tests.unit.audit.oracle import Difference, Oracle, StoreFinding, Stray, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = AuditSettings(
    window=round(WINDOW * SECOND), grace=round(GRACE * SECOND), bound=round(BOUND * SECOND),
    silence=round(SILENCE * SECOND),
)  # fmt: skip
NAMED: Final = {DROPPED: {"lost", "late"}, TWICE: {"duplicate_applied"}, STALE: {"stale_applied"}}
"""The verdicts that name each broken rule. A later sync may bring a link that the replica left out."""
ACCUSING: Final = {"lost", "late", "corrupt", "duplicate_applied", "stale_applied"}
FOUND_BY_DIGEST: Final = "found by the digest, read in full"
"""The replica itself noticed the missing link, and read the topic in full before the bound ended."""


def run(seed: int, folder: Path, fault: str = "", url: str = "") -> tuple[World, Oracle]:
    """One run and the oracle over its journals. ``url``: of an empty database; "": the model of a store."""
    folder.mkdir()
    world = World(seed, folder, lambda clock: Stored(url) if url else Modelled(seed, clock), fault)
    world.run(random.Random(seed).choice((20, 60, 100)))
    rows = [row for path in find([folder]).append for row in read(path)]
    return world, Oracle(rows, SETTINGS.window, SETTINGS.grace, SETTINGS.bound, SETTINGS.silence)


def accused(one: Oracle) -> list[Verdict]:
    """The verdicts that accuse a replica of a fault."""
    return [row for row in one.delivery() if row.verdict in ACCUSING or row.blame == "subscriber"]


class Tally(msgspec.Struct):
    """The sums of many runs. ``wrong`` must be empty: each entry is a sentence with the run's seed."""

    runs: Counter[str] = msgspec.field(default_factory=Counter)
    """By database."""
    healthy: int = 0
    """Runs without a planted fault."""
    largest: int = 0
    """Messages of the largest batch that a replica received."""
    verdicts: Counter[str] = msgspec.field(default_factory=Counter)
    """Of the deliveries of healthy runs."""
    named: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By planted fault, and by the verdict that names it."""
    accusations: list[str] = msgspec.field(default_factory=list)
    """Wrong accusations of healthy replicas or healthy runs."""
    unnamed: list[str] = msgspec.field(default_factory=list)
    """Planted faults that no verdict names."""
    differing: list[str] = msgspec.field(default_factory=list)
    """Tables in which Spark and the oracle differ."""

    @property
    def wrong(self) -> list[str]:
        """All wrong results."""
        return [*self.accusations, *self.unnamed, *self.differing]

    def add(self, world: World, one: Oracle, about: str, database: str) -> None:
        """Judge one run; ``about`` identifies the run."""
        self.runs[database] += 1
        self.largest = max(self.largest, world.largest)
        if world.fault:
            self._faulty(world, one, about)
            return
        self.healthy += 1
        self.verdicts += Counter(row.verdict for row in one.delivery())
        if one.bits():
            self.accusations.append(
                f"{about}: exit code {one.bits()}, {accused(one)[:3]} {one.strays()[:3]} {one.store()[:3]} "
                f"{one.state()[:3]}"
            )

    def _faulty(self, world: World, one: Oracle, about: str) -> None:
        planted = world.planted
        if planted is None:
            self.unnamed.append(f"{about}: {world.fault} was not planted")
            return
        guilty = (world.victim, planted.topic, planted.position)
        found = accused(one)
        mine = [row for row in found if (row.name, row.topic, row.position) == guilty]
        others = [row for row in found if (row.name, row.topic, row.position) != guilty]
        if others:
            self.accusations.append(f"{about}: {planted} in {world.victim}, but accused were {others[:3]}")
        verdicts = sorted({row.verdict for row in mine} & NAMED[planted.fault])
        if verdicts:
            self.named[planted.fault, verdicts[0]] += 1
        elif not mine and planted.fault == DROPPED and _found_by_digest(one, world.victim, planted.position):
            self.named[planted.fault, FOUND_BY_DIGEST] += 1
        else:
            self.unnamed.append(f"{about}: {planted} in {world.victim}, named were {mine}")


def _found_by_digest(one: Oracle, name: str, position: int) -> bool:
    """Whether a sync with the cause "mismatched" read everything, or the differing buckets, at or after a position.

    Then no change is missing any more, and the cause of the sync names the fault.
    """
    mine = [row for row in one.rows if row.name == name]
    noticed = {
        (row.run, row.topic, row.sequence)
        for row in mine
        if row.kind == "sync_begin" and row.cause == Trigger.MISMATCHED.value
    }
    return any(
        row.kind == "sync_end"
        and row.outcome == "full"
        and row.position >= position
        and (row.run, row.topic, row.sequence) in noticed
        for row in mine
    )


def judged_alike(spark: "SparkSession", path: Path, oracles: Mapping[str, Oracle]) -> list[str]:
    """A sentence for each domain and table in which Spark and the oracle differ. Writes the records to ``path``, in any
    order.
    """
    from pubsub_lib.audit.rules.pipeline import audit
    from tests.unit.audit.rules.test_pipeline import by_domain

    order = random.Random(0)
    write_cases(path, {domain: order.sample(one.rows, len(one.rows)) for domain, one in oracles.items()})
    tables = audit(spark.read.parquet(str(path)), SETTINGS, fast_path_from=0)
    by_spark: dict[str, Mapping[str, Sequence[object]]] = {
        "delivery": by_domain(tables.delivery, Verdict),
        "strays": by_domain(tables.strays, Stray),
        "store": by_domain(tables.store, StoreFinding),
        "state": by_domain(tables.state, Difference),
    }
    differing = [
        f"{domain}: the tables {name} of Spark and of the oracle differ"
        for domain, one in oracles.items()
        for name, found in by_spark.items()
        if Counter(found[domain]) != Counter(getattr(one, name)())
    ]
    spark.catalog.clearCache()
    return differing
