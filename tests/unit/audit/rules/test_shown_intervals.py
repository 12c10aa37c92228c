"""Replicas whose first records were removed: what they received shows what they followed."""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pubsub_lib.journal.rows import Row
from tests.scale import scaled
from tests.unit.audit.conftest import LITTLE, MUCH, Audit
from tests.unit.audit.joined_parts import DROPPED
from tests.unit.audit.joined_runs import SETTINGS, accused, judged_alike, run
from tests.unit.audit.oracle import Difference, Oracle, StoreFinding, Stray, Verdict
from tests.unit.audit.rules.test_pipeline import SAME, by_domain, generate, oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = scaled(25, "PUBSUB_TEST_JOINED")


def beheaded(rows: Iterable[Row], rng: random.Random) -> list[Row]:
    """The records without the first ones of each replica's run."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    found: list[Row] = []
    for of_run in runs.values():
        last = max(row.number for row in of_run)
        first = rng.randrange(2, max(3, last * 2 // 3)) if of_run[0].side == "replica" and last > 3 else 0
        found += [row for row in of_run if row.number > first]
    return found


def joined(seed: int, folder: Path, fault: str = "") -> tuple[Oracle, tuple[str, str, int] | None]:
    """A beheaded run of real trackers, and the replica, topic and position of the planted fault."""
    world, whole = run(seed, folder, fault)
    rows = beheaded(whole.rows, random.Random(seed))
    one = Oracle(rows, SETTINGS.window, SETTINGS.grace, SETTINGS.bound, SETTINGS.silence)
    planted = world.planted
    return one, None if planted is None else (world.victim, planted.topic, planted.position)


def test_healthy_replicas_are_not_accused(tmp_path: Path, seed: int) -> None:
    verdicts: Counter[str] = Counter()
    shown = 0
    for each in range(seed, seed + RUNS):
        one, _ = joined(each, tmp_path / str(each))
        assert (accused(one), one.strays()) == ([], []), each
        verdicts.update(row.verdict for row in one.delivery())
        shown += sum(interval.reached is not None for interval in one.intervals)
    assert shown > RUNS / 5
    assert {"ok", "unknown"} <= verdicts.keys()


def test_fault_after_the_missing_begin_is_named_and_no_other_replica_accused(tmp_path: Path, seed: int) -> None:
    named = 0
    for each in range(seed, seed + RUNS):
        one, guilty = joined(each, tmp_path / str(each), DROPPED)
        found = {(row.name, row.topic, row.position) for row in accused(one)}
        assert found <= {guilty}, each
        named += len(found)
    assert named


def test_spark_and_oracle_agree_on_joined_runs(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    oracles = {f"d{each}": joined(each, tmp_path / str(each))[0] for each in range(seed, seed + 12)}
    assert any(interval.reached is not None for one in oracles.values() for interval in one.intervals)
    assert judged_alike(spark, tmp_path / "joined.parquet", oracles) == []


@pytest.mark.parametrize("fast", [False, True])
def test_spark_and_oracle_agree_on_journals_with_faults(audit: Audit, seed: int, fast: bool) -> None:
    rng = random.Random(seed)
    cases = {name: beheaded(rows, rng) for name, rows in generate(range(SAME // 2)).items()}
    oracles = {name: oracle(rows) for name, rows in cases.items()}
    assert sum(interval.reached is not None for one in oracles.values() for interval in one.intervals) > 10
    tables = audit(cases, MUCH if fast else LITTLE)
    found: dict[str, dict[str, list[Any]]] = {
        "delivery": dict(by_domain(tables.delivery, Verdict)),
        "strays": dict(by_domain(tables.strays, Stray)),
        "store": dict(by_domain(tables.store, StoreFinding)),
        "state": dict(by_domain(tables.state, Difference)),
    }
    for table, by_spark in found.items():
        for name, one in oracles.items():
            wanted, seen = Counter(getattr(one, table)()), Counter(by_spark.get(name, []))
            assert [*(seen - wanted), *(wanted - seen)] == [], (name, table)
