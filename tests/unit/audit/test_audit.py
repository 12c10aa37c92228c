"""Real tracker, cache, journal and journal files, and the oracle behind them: healthy replicas are never accused."""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.testing.servers import PrivateServer
from tests.unit.audit.conftest import write_cases
from tests.unit.audit.joined import BOUND, GRACE, SILENCE, WINDOW, World
from tests.unit.audit.joined_parts import DROPPED, FAULTS, STALE, TWICE, Modelled, Stored
from tests.unit.audit.oracle import Difference, Oracle, StoreFinding, Stray, Verdict
from tests.unit.audit.test_pipeline import by_domain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = int(os.environ.get("PUBSUB_TEST_JOINED", "200"))
"""On the model of a store, for each test here."""
STORE_RUNS = int(os.environ.get("PUBSUB_TEST_JOINED_STORES", "20"))
"""On real stores, one half of them SQLite and one PostgreSQL, through the oracle and Spark."""
TOGETHER = 500
"""So many runs are audited by Spark at once."""
SETTINGS = AuditSettings(
    window=round(WINDOW * SECOND), grace=round(GRACE * SECOND), bound=round(BOUND * SECOND),
    silence=round(SILENCE * SECOND),
)  # fmt: skip
NAMED = {
    DROPPED: {"lost"},
    TWICE: {"duplicate_applied"},
    STALE: {"stale_applied"},
}
"""By what verdicts each broken rule is named."""
ACCUSING = {"lost", "late", "corrupt", "duplicate_applied", "stale_applied"}


def oracle(folder: Path) -> Oracle:
    rows = [row for path in find([folder]).append for row in read(path)]
    return Oracle(rows, SETTINGS.window, SETTINGS.grace, SETTINGS.bound, SETTINGS.silence)


def run(seed: int, folder: Path, fault: str = "", url: str = "") -> tuple[World, Oracle]:
    folder.mkdir()
    world = World(seed, folder, lambda clock: Stored(url) if url else Modelled(seed, clock), fault)
    world.run(random.Random(seed).choice((20, 60, 100)))
    return world, oracle(folder)


def accused(one: Oracle) -> list[Verdict]:
    return [row for row in one.delivery() if row.verdict in ACCUSING or row.blame == "subscriber"]


def read_in_full(one: Oracle, name: str, position: int) -> bool:
    """The digest did not fit, and everything or the differing buckets were read: then nothing is missing any more."""
    return any(
        row.name == name and row.kind == "sync_end" and row.outcome == "full" and row.position >= position
        for row in one.rows
    )


def healthy(one: Oracle, about: object) -> Counter[str]:
    """Nothing is wrong; the verdicts that were given."""
    assert one.bits() == 0, (about, accused(one)[:3], one.strays()[:3], one.store()[:3], one.state()[:3])
    return Counter(row.verdict for row in one.delivery())


def named(world: World, one: Oracle, about: object) -> str:
    """The rule that was broken is named, and nobody else is accused; by which verdict."""
    planted = world.planted
    assert planted is not None, f"{about}: {world.fault} was not planted"
    guilty = (world.victim, planted.topic, planted.position)
    mine = [row for row in accused(one) if (row.name, row.topic, row.position) == guilty]
    others = [row for row in accused(one) if (row.name, row.topic, row.position) != guilty]
    assert others == [], (about, planted, world.victim, others[:3])
    if planted.fault == DROPPED and not mine:
        assert read_in_full(one, world.victim, planted.position), (about, planted, world.victim)
        return "read in full"
    verdicts = {row.verdict for row in mine} & NAMED[planted.fault]
    assert verdicts, (about, planted, world.victim, mine)
    return verdicts.pop()


def test_healthy_replicas_are_not_accused(tmp_path: Path, seed: int) -> None:
    seen: Counter[str] = Counter()
    for each in range(seed, seed + RUNS):
        _, one = run(each, tmp_path / str(each))
        seen += healthy(one, each)
    print(f"runs from seed {seed}: {dict(seen)}")
    assert {"ok", "repaired", "excused", "reordered", "duplicate_dropped"} <= seen.keys()


def test_every_broken_rule_is_named_and_nobody_else_accused(tmp_path: Path, seed: int) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for each in range(seed, seed + RUNS):
        world, one = run(each, tmp_path / str(each), FAULTS[each % len(FAULTS)])
        found[world.fault, named(world, one, each)] += 1
    print(f"runs from seed {seed}: {dict(found)}")
    assert {fault for fault, _ in found} == set(FAULTS)


@pytest.mark.slow
@pytest.mark.postgresql
def test_runs_on_real_stores_are_judged_alike_by_spark(
    tmp_path: Path, seed: int, spark: "SparkSession", postgres_server: PrivateServer
) -> None:
    """Every other run is on PostgreSQL, and of each kind every other one is healthy."""
    seen: Counter[str] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    for first in range(0, STORE_RUNS, TOGETHER):
        oracles: dict[str, Oracle] = {}
        for number in range(first, min(first + TOGETHER, STORE_RUNS)):
            fault = FAULTS[number % len(FAULTS)] if number % 4 >= 2 else ""
            folder = tmp_path / str(number)
            url = postgres_server.create_database() if number % 2 else f"sqlite:///{tmp_path}/{number}.sqlite"
            world, one = run(seed + number, folder, fault, url)
            if number % 2:
                postgres_server.drop_database(url)
            if fault:
                found[fault, named(world, one, (seed + number, url))] += 1
            else:
                seen += healthy(one, (seed + number, url))
            oracles[f"d{number}"] = one
            shutil.rmtree(folder)
        print(f"{len(oracles)} runs from seed {seed + first} after {time.monotonic() - began:.0f} s: {dict(found)}")
        judged_alike(spark, tmp_path / f"{first}.parquet", oracles)
        print(f"... and by Spark after {time.monotonic() - began:.0f} s")
    print(f"verdicts on healthy replicas: {dict(seen)}; broken rules were named: {dict(found)}")


def judged_alike(spark: "SparkSession", path: Path, oracles: Mapping[str, Oracle]) -> None:
    """Spark's verdicts are the oracle's, row for row."""
    from pubsub_lib.audit.pipeline import audit

    write_cases(path, {domain: one.rows for domain, one in oracles.items()})
    tables = audit(spark.read.parquet(str(path)), SETTINGS, straight_from=0)
    delivery, strays = by_domain(tables.delivery, Verdict), by_domain(tables.strays, Stray)
    store, state = by_domain(tables.store, StoreFinding), by_domain(tables.state, Difference)
    for domain, one in oracles.items():
        assert Counter(delivery[domain]) == Counter(one.delivery()), domain
        assert Counter(strays[domain]) == Counter(one.strays()), domain
        assert Counter(store[domain]) == Counter(one.store()), domain
        assert Counter(state[domain]) == Counter(one.state()), domain
    spark.catalog.clearCache()
