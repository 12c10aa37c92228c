"""Runs of real trackers, caches and journals, judged by the oracle: healthy replicas are never accused."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _measurements import command

from tests.scale import scaled
from tests.unit.audit.joined_parts import FAULTS
from tests.unit.audit.joined_runs import SETTINGS, Tally, judged_alike, run
from tests.unit.audit.message_variants import VARIANTS
from tests.unit.audit.oracle import Oracle
from tests.unit.audit.variants import findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = scaled(25, "PUBSUB_TEST_JOINED")
"""Number of runs on the model of a store, for each test here; ``tools/bench joined`` runs on real stores."""


def test_healthy_replicas_are_not_accused(tmp_path: Path, seed: int) -> None:
    tally = Tally()
    for each in range(seed, seed + RUNS):
        tally.add(*run(each, tmp_path / str(each)), f"seed {each}", "model")
    assert tally.wrong == []
    assert {"ok", "repaired", "excused", "reordered", "duplicate_dropped"} <= tally.verdicts.keys()
    assert tally.largest >= (20 if RUNS >= 100 else 2)


def test_every_broken_rule_is_named_and_no_other_replica_accused(tmp_path: Path, seed: int) -> None:
    tally = Tally()
    for each in range(seed, seed + RUNS):
        tally.add(*run(each, tmp_path / str(each), FAULTS[each % len(FAULTS)]), f"seed {each}", "model")
    assert tally.wrong == []
    assert {fault for fault, _ in tally.named} == set(FAULTS)


def test_joined_command_prints_a_tally(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    arguments = ["--runs", "12", "--seed", str(seed), "--databases", "sqlite", "--no-spark"]
    assert command.run("joined", arguments) == 0
    output = capsys.readouterr().out
    assert f"12 runs, seeds {seed} to {seed + 11}: 12 on sqlite" in output
    assert "accusations of healthy replicas: 0" in output
    assert "planted faults that were not named: 0 of 6" in output


def test_joined_command_rejects_an_unknown_database(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run("joined", ["--databases", "oracle"])
    assert ended.value.code == 2
    assert "no such database: oracle; there are sqlite, postgresql" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.postgresql
def test_spark_and_oracle_agree_on_runs_with_real_stores(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    """The command uses the session of the tests: a JVM of its own would take most of the time."""
    assert command.run("joined", ["--runs", "24", "--seed", str(seed)]) == 0
    output = capsys.readouterr().out
    assert "12 on postgresql, 12 on sqlite" in output
    assert "tables in which Spark and the oracle differ: 0" in output


def judged(name: str) -> Oracle:
    return Oracle(VARIANTS[name][0](), SETTINGS.window, SETTINGS.grace, SETTINGS.bound, SETTINGS.silence)


@pytest.mark.parametrize("name", VARIANTS)
def test_variant_of_a_recorded_session(name: str) -> None:
    _, expected, code = VARIANTS[name]
    one = judged(name)
    assert findings(one) == expected
    assert one.bits() == code


def test_spark_and_oracle_agree_on_variants_of_a_recorded_session(spark: "SparkSession", tmp_path: Path) -> None:
    assert judged_alike(spark, tmp_path / "variants.parquet", {name: judged(name) for name in VARIANTS}) == []
