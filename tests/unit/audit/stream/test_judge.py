"""A follower names the missing evidence that ``run`` names, and gives variants of a recorded session their verdicts."""

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.main import main
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream.findings import folder_of_findings, last_findings
from pubsub_lib.audit.stream.windows import written
from pubsub_lib.journal.rows import Row
from tests.unit.audit import joined_runs
from tests.unit.audit.arrivals import Arrivals
from tests.unit.audit.message_variants import VARIANTS
from tests.unit.audit.oracle import Difference, Oracle, StoreFinding, Stray, Verdict
from tests.unit.audit.rules.test_pipeline import CASES, all_cases
from tests.unit.audit.scenario import Scenario
from tests.unit.audit.stream.test_loop import OF_THE_STORE, SETTINGS, verdicts_of_follower, without_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_MISSING = [
    "clean", "retention_deleted_the_begin_of_a_replica", "a_replica_lost_its_subscriptions",
    "a_replica_lost_one_of_its_subscriptions", "a_service_lost_the_only_message_of_a_topic",
    "journals_of_two_databases_in_one_folder", "the_database_got_another_id_while_a_program_ran",
    "no_replica_has_a_journal", "only_the_sending_half_of_a_relay_has_a_journal", "one_of_two_replicas_has_no_journal",
    "requests_around_lost_records", "two_replicas_share_a_name",
]  # fmt: skip
"""Known answers about participants: each sentence of docs/audit.md, "Exit code", about them."""


Found = Counter[tuple[str, StoreFinding | Difference]]


def oracle(rows: Sequence[Row], settings: AuditSettings) -> Oracle:
    return Oracle(rows, settings.window, settings.grace, settings.bound, settings.silence)


def both(
    cases: Mapping[str, Sequence[Row]], settings: AuditSettings, root: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[list[str], list[str]]:
    """The problems of ``run`` and of ``follow``, whose results are in ``root``, sorted."""
    arrivals = Arrivals(root / "journals", cases, random.Random(1))
    arrivals.all_come()
    folders = [f"{domain}={folder}" for domain, (folder,) in arrivals.folders.items()]
    names = ("window", "grace", "bound", "silence")
    seconds = [each for name in names for each in (f"--{name}", str(getattr(settings, name) / SECOND))]
    assert main(["run", *folders, "-f", "json", "--out", str(root / "batch"), *seconds]) & 64 == 0
    by_run = msgspec.json.decode(capsys.readouterr().out)["problems"]
    follow = ["follow", *folders, "--out", str(root / "out"), "--once", "--patience", "0", *seconds]
    assert main(follow) & 64 == 0
    by_follow = sentences(capsys)
    assert main(follow) & 32, "the next follower knows the problems"
    assert sentences(capsys) == [], "and does not print them again"
    return sorted(by_run), sorted(by_follow)


def sentences(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The problems on stderr."""
    lines = [each.removeprefix("pubsub-audit: ") for each in capsys.readouterr().err.splitlines()]
    return [each for each in lines if " wait for the run " not in each]


@pytest.mark.long
def test_follower_names_the_missing_participants_that_run_names(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {name: without_store(CASES[name][0](Scenario(name))) for name in OF_MISSING}
    by_run, by_follow = both(cases, SETTINGS, tmp_path, capsys)
    parts = [each for each in by_follow if "is missing" in each]
    assert [each for each in by_follow if each not in parts] == by_run
    named = {name for name in OF_MISSING if any(re.search(rf" of {name}\b", each) for each in by_run)}
    assert named == {name for name in OF_MISSING if oracle(cases[name], SETTINGS).missing()}
    assert len(named) == len(OF_MISSING) - 2


def findings_in(folders: Iterable[Path]) -> Found:
    """The rows of the tables ``store`` and ``state`` in these folders."""
    found: Found = Counter()
    kinds: dict[str, type[StoreFinding | Difference]] = {"store": StoreFinding, "state": Difference}
    for folder in folders:
        for name, kind in kinds.items():
            for path in folder.glob(f"{name}/*.parquet"):
                for row in pq.read_table(path, partitioning=None).to_pylist():
                    found[row["domain"], kind(*[row[column] for column in kind._fields])] += 1
    return found


def findings_of_follower(out: Path) -> Found:
    return findings_in(folder_of_findings(out, each.domain, each.number) for each in last_findings(out))


def as_the_oracle(
    oracles: Mapping[str, Oracle], root: Path, by_follow: Sequence[str]
) -> None:  # fmt: skip
    """Check all verdicts and the exit code of each domain with a closed window against the oracle, and the findings
    against those of ``run``, too.
    """
    out = root / "out"
    truth = {name: Counter(row for row, time in one.timed() if one.closed(time)) for name, one in oracles.items()}
    found: dict[str, Counter[Verdict | Stray]] = {name: Counter() for name in oracles}
    for (domain, _, row), number in verdicts_of_follower(out).items():
        found[domain][row] += number
    for name in oracles:
        assert [*(found[name] - truth[name]), *(truth[name] - found[name])] == [], name
    closed = {each.domain for each in last_findings(out)}
    assert closed >= {each.domain for each in written(out)}
    by_oracle: Found = Counter()
    for name in oracles.keys() & closed:
        by_oracle.update((name, row) for row in oracles[name].store())
        by_oracle.update((name, row) for row in oracles[name].state())
    findings = findings_of_follower(out)
    assert [*(findings - by_oracle), *(by_oracle - findings)] == []
    by_run = Counter({key: n for key, n in findings_in([root / "batch"]).items() if key[0] in closed})
    assert findings == by_run
    codes = {each.domain: each.exit_code for each in last_findings(out)}  # without a closed window: incomplete
    for window in written(out):
        codes[window.domain] |= window.exit_code
    for name, one in oracles.items():
        named = any(re.search(rf" of {name}\b", each) for each in by_follow)
        assert codes.get(name, 32) | (32 if named else 0) == one.bits(), name


@pytest.mark.long
def test_follower_gives_variants_of_a_recorded_session_the_verdicts_of_run(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the store and of the state, too: their journals have the records of the store."""
    settings = joined_runs.SETTINGS
    cases = {name: build() for name, (build, _, _) in VARIANTS.items()}
    by_run, by_follow = both(cases, settings, tmp_path, capsys)
    silent = [each for each in by_follow if "has not ended" in each]
    assert [each for each in by_follow if each not in silent] == by_run
    oracles = {name: oracle(rows, settings) for name, rows in cases.items()}
    assert len(silent) == sum(len(one.silent()) for one in oracles.values())
    as_the_oracle(oracles, tmp_path, by_follow)
    assert len({name for name, _ in findings_of_follower(tmp_path / "out")}) >= 20


@pytest.mark.long
def test_follower_gives_known_answers_the_findings_of_run(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdicts of deliveries, too, which depend on the store after a restore."""
    every = all_cases()
    cases = {name: rows for name, rows in every.items() if (one := oracle(rows, SETTINGS)).store() or one.state()}
    both(cases, SETTINGS, tmp_path, capsys)
    findings = findings_of_follower(tmp_path / "out")
    closed = {each.domain for each in last_findings(tmp_path / "out")}
    by_run = findings_in([tmp_path / "batch"])
    assert findings == Counter({key: n for key, n in by_run.items() if key[0] in closed})
    assert {row.verdict for _, row in findings} >= OF_THE_STORE
