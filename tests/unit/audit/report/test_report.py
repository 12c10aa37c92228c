"""The results of a run are saved, and can be shown again."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.report.aggregates import Aggregates
from pubsub_lib.audit.report.labels import verdict
from pubsub_lib.audit.report.report import check_free, read_summary, save, save_summary, text
from pubsub_lib.audit.report.summary import Balance, Count, Coverage, Summary
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.errors import ConfigError
from tests.unit.audit.pages import anomaly

ONE = Summary(
    exit_code=1,
    balance={"": Balance(5, 4, 0, 1, 0, 0, 0)},
    counts=[Count("", "delivery", "lost", "middle", "wire", 1), Count("", "delivery", "ok", "", "", 4)],
    skews=[],
    silent=["ab"],
    open_domains=[],
    syncs=[],
    first=[{"of": "delivery", "verdict": "lost", "sequence": 3, "topic": "t", "detail": ""}],
    problems=[],
)


NO_TABLES: Any = None
NO_AGGREGATES: Any = None


@pytest.fixture
def umask() -> Iterator[None]:
    """The usual one, with which other users may read new files."""
    old = os.umask(0o022)
    yield
    os.umask(old)


def test_saved_summary_is_read_unchanged(tmp_path: Path) -> None:
    save_summary(ONE, tmp_path / "out")
    assert msgspec.to_builtins(read_summary(tmp_path / "out")) == msgspec.json.decode(msgspec.json.encode(ONE))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_folder_of_results_is_for_its_user_only(tmp_path: Path, umask: None) -> None:
    save_summary(ONE, tmp_path / "out")
    assert mode(tmp_path / "out") == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    save_summary(ONE, tmp_path / "shared")
    assert mode(tmp_path / "shared") == 0o755


@pytest.mark.parametrize("existing", [None, 0o750])
def test_saved_tables_are_for_their_user_only_unless_the_folder_existed(
    existing: int | None, tmp_path: Path, umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def write(_tables: Any, _derived: Any, summary: Summary, folder: Path, **_: bool) -> None:
        seen.append(mode(folder))  # from the first file on
        save_summary(summary, folder)

    monkeypatch.setattr("pubsub_lib.audit.report.report._save_into", write)
    folder = tmp_path / "out"
    if existing is not None:
        folder.mkdir(mode=existing)
    save(NO_TABLES, NO_AGGREGATES, ONE, check_free(folder))
    assert seen == [mode(folder)] == [existing or 0o700]


def test_text_has_balance_blame_and_first_anomalies() -> None:
    assert list(text(ONE)) == [
        "Of 5 expected deliveries: a change was lost and not repaired (exit code 1).",
        "silent run (it has not ended, but wrote no more records): ab",
        "",
        "balance: 5 expected = 4 delivered + 0 repaired + 1 lost + 0 pending + 0 excused + 0 unknown",
        "  delivery  lost                          1  middle, blame: wire",
        "  delivery  ok                            4",
        "",
        "first of each kind:",
        "  of=delivery verdict=lost sequence=3 topic=t",
    ]


def test_text_names_the_object_of_a_message_and_readable_times() -> None:
    one = anomaly("lost", 1, "x\n")
    *_, line = text(msgspec.structs.replace(ONE, first=[one]))
    assert " p=2026-09-21T14:13:21.000000Z " in line
    assert line.endswith(r" table=ports key='p1 x\n' action=set version=8 more_objects=3")
    of_object = {**anomaly("stale", 1, "x"), "version": 4}
    *_, line = text(msgspec.structs.replace(ONE, first=[of_object]))
    assert line.endswith(" table=ports key=key x version=4")


def test_text_lists_only_anomalies_that_are_faults() -> None:
    first = [{"of": "delivery", "verdict": kind} for kind in ("repaired", "reordered", "lost", "unknown")]
    first.append({"of": "store", "verdict": "unpublished"})
    mixed = msgspec.structs.replace(ONE, first=first)
    assert list(text(mixed))[-2:] == ["  of=delivery verdict=lost", "  of=delivery verdict=unknown"]
    strict = msgspec.structs.replace(mixed, settings=AuditSettings(strict=True))
    assert "  of=delivery verdict=reordered" in list(text(strict))
    healed = msgspec.structs.replace(ONE, first=first[:1])
    assert "first of each kind:" not in list(text(healed))


CLEAN = Summary(0, {"": Balance(5, 5)}, [], [], [], [], [], [])


def test_verdict_of_a_result_without_faults() -> None:
    assert verdict(CLEAN) == "No fault found: all 5 expected deliveries are accounted for."
    none = msgspec.structs.replace(CLEAN, balance={"": Balance()})
    assert verdict(none) == "No fault found, but no delivery was expected."


def test_verdict_names_what_is_pending_and_excused() -> None:
    open_end = msgspec.structs.replace(CLEAN, balance={"": Balance(9, 4, 1, 0, 3, 1), "net": Balance(2, 1, 0, 0, 1)})
    assert verdict(open_end) == (
        "No fault found: of 11 expected deliveries 6 were delivered or repaired, 4 pending (their windows are not "
        "closed), 1 excused (their replicas were not required to receive them)."
    )


@pytest.mark.parametrize(
    ("coverage", "sentence"),
    [
        ([Coverage("", True, 3, 3)], ""),
        ([Coverage("", False, 3, 0)], " Not audited: the store and the state of replicas (no --store)."),
        (
            [Coverage("", True, 3, 1)],
            " Not audited: the state of 2 of 3 replicas (not closed, so without a listing).",
        ),
        (
            [Coverage("a", False, 3, 0), Coverage("b", True, 2, 1)],
            (
                " Not audited: the store and the state of replicas of 1 of 2 domains (no --store) and the state of 1 "
                "of 2 replicas (not closed, so without a listing)."
            ),
        ),
        (
            [Coverage("", True, 3, 1, 2)],
            (
                " Not audited: the single objects of 2 of 3 replicas (not closed; count and digest of all their "
                "objects are compared)."
            ),
        ),
        (
            [Coverage("a", False, 3, 0), Coverage("b", True, 4, 1, 2)],
            (
                " Not audited: the store and the state of replicas of 1 of 2 domains (no --store), the state of 1 "
                "of 4 replicas (not closed, so without a listing) and the single objects of 2 of 4 replicas (not "
                "closed; count and digest of all their objects are compared)."
            ),
        ),
    ],
)
def test_verdict_names_what_was_not_audited(coverage: list[Coverage], sentence: str) -> None:
    for one in (CLEAN, ONE):
        assert verdict(msgspec.structs.replace(one, coverage=coverage)) == verdict(one) + sentence


def test_verdict_names_hosts_whose_clocks_are_not_compared() -> None:
    skews = [
        {"domain": "", "replica_host": "a", "publisher_host": each, "skew": skew}
        for each, skew in (("b", 5), ("c", None))
    ]
    assert verdict(msgspec.structs.replace(CLEAN, skews=skews)) == (
        "No fault found: all 5 expected deliveries are accounted for. Not audited: the difference of the clocks of 1 "
        "pairs of hosts (no hello request; they count as equal)."
    )


def test_check_free_accepts_only_new_and_empty_folders(tmp_path: Path) -> None:
    check_free(tmp_path / "new")
    check_free(tmp_path)
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError, match="name a new folder for the results"):
            check_free(taken)


def test_check_free_refuses_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/out cannot be written \(Not a directory\)"):
        check_free(tmp_path / "file" / "out")
    for mount in ("/proc", "/"):
        with pytest.raises(ConfigError):
            check_free(Path(mount))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match="or the current folder; name a new folder in it"):
        check_free(Path())
    monkeypatch.setattr("os.path.ismount", lambda _path: True)
    with pytest.raises(ConfigError, match="is a mount point"):
        check_free(tmp_path / "new")


def test_check_free_resolves_links_and_removes_unfinished_results(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / ".empty.unfinished" / "delivery").mkdir(parents=True)
    assert check_free(tmp_path / "link") == tmp_path.resolve() / "empty"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "link"]


class Table:
    """Replaces a DataFrame: writing it fails after its folder was made. Its session has this number of partitions."""

    def __init__(self, partitions: str) -> None:
        self.sparkSession = SimpleNamespace(conf={"spark.sql.shuffle.partitions": partitions})

    @property
    def write(self) -> "Table":
        return self

    def partitionBy(self, _column: str) -> "Table":  # noqa: N802 - Spark's name
        return self

    def parquet(self, where: str) -> None:
        Path(where.removeprefix("file://").removeprefix("file:")).mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.table({"verdict": [str(number) for number in range(99_999)]})


@pytest.mark.parametrize("partitions", ["1", "2"])
def test_failed_save_leaves_no_files(tmp_path: Path, partitions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    table: Any = Table(partitions)
    tables = Tables(*[table] * len(Tables.__struct_fields__))
    derived = Aggregates(*[table] * len(Aggregates.__struct_fields__))
    with pytest.raises(ConfigError, match="No space left on device"):
        save(tables, derived, ONE, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_read_summary_refuses_other_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name the --out folder of an audit"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(ConfigError, match="is not a summary of an audit"):
        read_summary(tmp_path)
