"""The corrected times of all records are those of the oracle."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_lib.audit.rules import base_tables, corrections
from pubsub_lib.audit.spark.settled import settled, together
from tests.unit.audit import drift_cases
from tests.unit.audit.clock_cases import CASES
from tests.unit.audit.conftest import SETTINGS, write_cases
from tests.unit.audit.generator import BOUND, GRACE, SILENCE, WINDOW, Generator
from tests.unit.audit.oracle import Oracle
from tests.unit.audit.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WALLS = ("first_wall", "last_wall", "last_mark", "sent_wall")


@pytest.mark.long
def test_corrected_times_are_those_of_the_oracle(little: "SparkSession", tmp_path: Path, rng: random.Random) -> None:
    cases = {name: build(Scenario(name)) for name, (build, _, _) in {**CASES, **drift_cases.CASES}.items()}
    for seed in rng.sample(range(2**32), 8):
        cases[f"d{seed}"] = Generator(random.Random(seed), 1.0, f"d{seed}", clocks=seed % 4 > 0).rows()
        cases[f"drift{seed}"] = drift_cases.random_drift(random.Random(seed), f"drift{seed}")
    path = tmp_path / "cases.parquet"
    write_cases(path, cases)
    rows = together(little.read.parquet(str(path)))
    events, overview = settled(base_tables.events(rows)), settled(base_tables.overview(rows))
    right = corrections.corrected(rows, events, overview, corrections.by_run(overview), SETTINGS)
    oracles = {name: Oracle(of_case, WINDOW, GRACE, BOUND, SILENCE) for name, of_case in cases.items()}
    truth = {(name, row.run, row.number): (row.wall, row.written) for name, one in oracles.items() for row in one.rows}
    found = {
        (row["domain"], row["run"], row["number"]): (row["wall"], row["written"])
        for row in right.rows.select("domain", "run", "number", "wall", "written").collect()
    }
    assert found == truth
    of_events = right.events.collect()
    assert of_events
    for row in of_events:
        assert row["wall"] == truth[row["domain"], row["run"], row["number"]][0]
    assert by_topic(right.overview) == by_topic(base_tables.overview(right.rows))
    assert any(one.clocks.ahead[clock] for one in oracles.values() for clock in one.clocks.ahead)
    assert any(len(pieces) > 3 for one in oracles.values() for pieces in one.clocks.pieces.values())


def by_topic(overview: "DataFrame") -> dict[tuple[str, ...], list[int]]:
    key = ("domain", "run", "uuid", "topic")
    return {tuple(row[name] for name in key): [row[name] for name in WALLS] for row in overview.collect()}


def test_clocks_of_one_host_need_no_correction(little: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "cases.parquet"
    write_cases(path, {"d": Scenario("d").rows()})
    rows = together(little.read.parquet(str(path)))
    events, overview = settled(base_tables.events(rows)), settled(base_tables.overview(rows))
    right = corrections.corrected(rows, events, overview, corrections.by_run(overview), SETTINGS)
    assert right.rows is rows
    assert (right.events is events, right.overview is overview, right.between) == (True, True, None)
