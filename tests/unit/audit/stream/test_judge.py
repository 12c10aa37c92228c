"""A follower names the missing evidence that ``run`` names, and gives variants of a recorded session their verdicts."""

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pubsub_lib.audit.main import main
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream.windows import written
from pubsub_lib.journal.rows import Row
from tests.unit.audit import joined_runs
from tests.unit.audit.arrivals import Arrivals
from tests.unit.audit.message_variants import VARIANTS
from tests.unit.audit.oracle import Oracle, Stray, Verdict
from tests.unit.audit.recorded import session
from tests.unit.audit.rules.test_pipeline import CASES
from tests.unit.audit.scenario import Scenario
from tests.unit.audit.stream.test_loop import SETTINGS, verdicts_of_follower, without_store

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


ALONE = "the_session_as_it_was"


def differs(rows: Sequence[Row]) -> bool:
    """Whether these are not the records of the session, apart from objects and their listings."""
    return comparable(rows) != comparable(without_store(session()))


def comparable(rows: Sequence[Row]) -> list[Row]:
    kept = [msgspec.structs.replace(row, number=0) for row in rows if row.kind not in ("object", "listing")]
    return sorted(kept, key=repr)


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
    assert main(["run", *folders, "-f", "json", *seconds]) & 64 == 0
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


@pytest.mark.long
def test_follower_gives_variants_of_a_recorded_session_the_verdicts_of_run(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = joined_runs.SETTINGS
    cases = {name: without_store(build()) for name, (build, _, _) in VARIANTS.items()}
    # A follower does not look at listings: one of these variants is enough.
    cases = {name: rows for name, rows in cases.items() if name == ALONE or differs(rows)}
    by_run, by_follow = both(cases, settings, tmp_path, capsys)
    silent = [each for each in by_follow if "has not ended" in each]
    assert [each for each in by_follow if each not in silent] == by_run
    oracles = {name: oracle(rows, settings) for name, rows in cases.items()}
    assert len(silent) == sum(len(one.silent()) for one in oracles.values())
    truth = {name: Counter(row for row, time in one.timed() if one.closed(time)) for name, one in oracles.items()}
    found: dict[str, Counter[Verdict | Stray]] = {name: Counter() for name in cases}
    for (domain, _, row), number in verdicts_of_follower(tmp_path / "out").items():
        found[domain][row] += number
    for name in cases:
        assert [*(found[name] - truth[name]), *(truth[name] - found[name])] == [], name
    codes = {each.domain: 0 for each in written(tmp_path / "out")}  # without a closed window: incomplete
    for closed in written(tmp_path / "out"):
        codes[closed.domain] |= closed.exit_code
    for name, one in oracles.items():
        named = any(re.search(rf" of {name}\b", each) for each in by_follow)
        state = 4 if any(row.verdict == "diverged" for row in one.state()) else 0
        assert codes.get(name, 32) | (32 if named else 0) | state == one.bits(), name
