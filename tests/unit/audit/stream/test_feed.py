"""A follower adds its windows to a lake, as ``run`` does, and adds later what it could not add."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from pubsub_lib.audit.lake.addition import Addition
from pubsub_lib.audit.lake.append import Appended
from pubsub_lib.audit.lake.days import report
from pubsub_lib.audit.lake.folder import Lake, prepare
from pubsub_lib.audit.main import main
from pubsub_lib.audit.report.summary import Balance
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream import feed
from pubsub_lib.audit.stream.feed import Feed
from pubsub_lib.audit.stream.runs import JournalPart
from pubsub_lib.audit.stream.windows import SUMMARY, Closed, place_of
from pubsub_lib.errors import ConfigError
from pubsub_lib.journal.compaction import compact
from tests.unit.audit.lake.additions import OK, SECOND_DAY, THIRD, WINDOW, addition, at
from tests.unit.audit.test_main import lossy_journals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(lake: Path, table: str) -> list[dict[str, Any]]:
    one = Lake(lake)
    return [row for day in one.days() for row in one.read(table, day).to_pylist()]


@pytest.mark.long
def test_follower_adds_what_run_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    """It also adds the windows of a follower that could not add them, or had no lake."""
    folder, lakes = tmp_path / "journals", (tmp_path / "run", tmp_path / "follow")
    lossy_journals(folder, monkeypatch)
    compact(folder)
    follow = [
        "follow",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--once",
        "--append",
        str(lakes[1]),
        "--bound",
        "10",
    ]
    prepare(lakes[1], WINDOW)
    monkeypatch.setattr("pubsub_lib.audit.lake.append.Lake.replace", full)
    assert main(follow) == 33
    assert f"{lakes[1]} cannot be written (No space left on device)" in capsys.readouterr().err
    assert Lake(lakes[1]).days() == []
    monkeypatch.undo()
    assert main(follow) == 1
    assert main(["run", str(folder), "--append", str(lakes[0]), "--bound", "10"]) == 1
    for table in ("balance", "verdict", "latency", "anomaly"):
        of_run, of_follow = (rows(lake, table) for lake in lakes)
        assert of_run == of_follow, table
        assert of_run, table
    windows = [[(each["window"], each["closed"], each["exit_code"]) for each in rows(lake, "window")] for lake in lakes]
    assert windows[0] == windows[1]
    (coverage,) = rows(lakes[1], "coverage")
    assert (coverage["command"], coverage["incomplete"], coverage["replicas"]) == ("follow", False, 1)
    capsys.readouterr()
    assert main(follow) == 1
    assert capsys.readouterr().err == "", "nothing is added twice"


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


class Appends:
    """Replaces Spark and the append: keeps the additions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders: list[list[str]] = []
        self.additions: list[Any] = []
        self.error: Exception | None = None
        self.result = Appended("1 window added", [], [])
        monkeypatch.setattr("pubsub_lib.audit.lake.collect.of_windows", self.collect)
        monkeypatch.setattr(feed, "append", self.append)

    def collect(self, _spark: object, folders: Any, audit: str, domains: Any, _settings: object) -> Any:
        self.folders.append([each.name for each in folders])
        self.additions.append((audit, domains))
        return cast("Addition", None)

    def append(self, *_: object) -> Appended:
        if self.error is not None:
            raise self.error
        return self.result


def window(begin: str, domain: str = "") -> Closed:
    return Closed(domain, at(begin), 0, Balance(1, 1), 0, [])


def part(run: str, number: int, begin: str, end: str, side: str = "replica") -> JournalPart:
    return JournalPart(
        f"{run}-{number}", run, number, side, "r1", "h1", True, 1 + number, at(begin), at(end), None, False
    )


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> Appends:
    return Appends(monkeypatch)


PARTS = {"": [part("ab", 1, "01 10:00", "01 12:00"), part("ab", 2, "01 12:00", "03 12:00"),
              part("ef", 1, "01 10:00", "03 12:00", "store")]}  # fmt: skip


def new(tmp_path: Path, keep_days: int | None = None) -> Feed:
    prepare(tmp_path / "lake", WINDOW)
    (tmp_path / "out").mkdir(exist_ok=True)
    spark = cast("SparkSession", None)
    return Feed(tmp_path / "lake", tmp_path / "out", tmp_path / "out", AuditSettings(), spark, keep_days)


def write(tmp_path: Path, *closed: Closed) -> None:
    """Write the folders of these windows, as a follower does before it adds them."""
    for each in closed:
        place = place_of(tmp_path / "out", each.domain, each.window, each.revision)
        place.mkdir(parents=True, exist_ok=True)
        (place / SUMMARY).write_bytes(msgspec.json.encode(each))


def test_windows_wait_until_they_are_added(tmp_path: Path, appends: Appends) -> None:
    one = new(tmp_path)
    appends.error = ConfigError("the disk is full")
    with pytest.raises(ConfigError):
        one.add([window("01 10:00")], PARTS, {"": at("01 10:01")}, [])
    appends.error = None
    assert one.add([window("01 10:01")], PARTS, {"": at("01 10:02")}, []) == []
    assert appends.folders[-1] == [f"window={at('01 10:00')}", f"window={at('01 10:01')}"]
    assert one.add([], PARTS, {"": at("01 10:03")}, []) == []
    assert len(appends.folders) == 2
    ((domain,),) = [domains for _, domains in appends.additions[-1:]]
    assert (domain.begin, domain.end, domain.replicas) == (at("01 10:00"), at("01 10:02"), 1)
    assert [(run.run, run.first, run.begin, run.end) for run in domain.runs] == [
        ("ab", 2, at("01 10:00"), at("03 12:00"))
    ]


def test_windows_wait_until_the_state_is_saved(
    tmp_path: Path, appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the sentences of the append, and the problems of the follower, would be lost."""
    one, end = new(tmp_path), {"": at("01 10:01")}
    appends.result = Appended("1 window added", [], ["x is damaged"])
    with monkeypatch.context() as patched:
        patched.setattr(feed, "write_whole", full)
        with pytest.raises(OSError, match="No space left"):
            one.add([window("01 10:00")], PARTS, end, ["y"])
    assert one.add([], PARTS, end, ["y"]) == ["x is damaged"]
    assert appends.folders == [[f"window={at('01 10:00')}"]] * 2
    assert [domain.problems for _, domains in appends.additions for domain in domains] == [["y"], ["y"]]
    assert one.add([], PARTS, end, ["y"]) == []


def test_revision_of_a_window_is_added_once(tmp_path: Path, appends: Appends, monkeypatch: pytest.MonkeyPatch) -> None:
    one, end = new(tmp_path), {"": at("01 10:02")}
    one.add([window("01 10:00"), window("01 10:01")], PARTS, end, [])
    revised = msgspec.structs.replace(window("01 10:00"), revision=2)
    one.add([revised], PARTS, end, [])
    assert appends.folders[1:] == [["revision=2"]]
    in_lake = {("", at("01 10:00")), ("", at("01 10:01"))}
    monkeypatch.setattr(feed, "closed_windows", lambda *_: in_lake)
    write(tmp_path, window("01 10:00"), window("01 10:01"), revised, msgspec.structs.replace(revised, revision=3))
    new(tmp_path).add([], PARTS, end, [])  # the one before was killed when it had written the third revision
    assert appends.folders[2:] == [["revision=3"]]
    new(tmp_path).add([], PARTS, end, [])
    assert len(appends.folders) == 3


def test_idle_day_is_added_when_the_next_one_begins(tmp_path: Path, appends: Appends) -> None:
    one = new(tmp_path)
    one.add([window("01 10:00")], PARTS, {"": at("01 10:01")}, [])
    one.add([], PARTS, {"": at("02 00:00")}, [])
    assert len(appends.folders) == 1
    one = new(tmp_path)  # a restart
    one.add([], PARTS, {"": at("03 09:00")}, [])
    assert appends.folders[1:] == [[]]
    ((domain,),) = [domains for _, domains in appends.additions[-1:]]
    assert (domain.begin, domain.end) == (at("01 10:01"), at("03 09:00"))


def test_problem_belongs_to_the_next_append_only(tmp_path: Path, appends: Appends) -> None:
    one = new(tmp_path)
    appends.result = Appended("2 windows added", ["1 window replaced"], ["x is damaged"])
    assert one.add([window("01 10:00")], PARTS, {"": at("01 10:01")}, ["y"]) == ["x is damaged", "1 window replaced"]
    assert one.incomplete
    new(tmp_path).add([window("01 10:01")], PARTS, {"": at("01 10:02")}, ["y", "z"])
    problems = [(domain.incomplete, domain.problems) for _, domains in appends.additions for domain in domains]
    assert problems == [(True, ["y"]), (True, ["z"])]
    first, second = (audit for audit, _ in appends.additions)
    assert first == second


def test_other_lake_gets_all_windows(tmp_path: Path, appends: Appends) -> None:
    place = place_of(tmp_path / "out", "", at("01 10:00"))
    write(tmp_path, window("01 10:00"))
    new(tmp_path).add([], PARTS, {"": at("01 10:02")}, [])
    (tmp_path / "lake").rename(tmp_path / "other")
    prepare(tmp_path / "lake", WINDOW)
    spark = cast("SparkSession", None)
    other = Feed(tmp_path / "other", tmp_path / "out", tmp_path / "out", AuditSettings(), spark, None)
    other.add([], PARTS, {"": at("01 10:02")}, [])
    assert appends.folders == [[place.name]] * 2


def test_damaged_state_is_an_error(tmp_path: Path, appends: Appends) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "append.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"append\.json is not a follower's state"):
        new(tmp_path)
    assert report(tmp_path / "lake", SECOND_DAY, THIRD, THIRD, since_begin=True).exit_code == 32
    assert appends.folders == []


THREE_DAYS = ("01 10:00", "02 10:00", "03 10:00")


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The windows of each append. Replaces Spark, but not the append: a window has one delivery without a fault.
    The first follower, with ``--keep-days 2``, has ended after it added a window on each of the first three days.
    """
    collected: list[list[int]] = []

    def collect(_spark: object, folders: Any, audit: str, domains: Any, settings: AuditSettings) -> Addition:
        places = [each.parent if each.name.startswith("revision=") else each for each in folders]
        collected.append([int(each.name.removeprefix("window=")) for each in places])
        times = {begin: {OK: 1} for begin in (*THREE_DAYS, "03 10:01") if at(begin) in collected[-1]}
        return addition(domains, times, audit=audit, settings=settings)

    monkeypatch.setattr("pubsub_lib.audit.lake.collect.of_windows", collect)
    monkeypatch.setattr("pubsub_lib.audit.lake.append.today", lambda: THIRD)
    one = new(tmp_path, 2)
    for begin in THREE_DAYS:
        write(tmp_path, window(begin))
        one.add([window(begin)], PARTS, {"": at(begin) + WINDOW}, [])
    assert Lake(tmp_path / "lake").days() == [SECOND_DAY, THIRD]
    collected.clear()
    return collected


def incomplete(tmp_path: Path) -> dict[str, bool]:
    """Day -> whether its coverage is incomplete."""
    return {str(day): row["incomplete"] for day in Lake(tmp_path / "lake").days()
            for row in Lake(tmp_path / "lake").read("coverage", day).to_pylist()}  # fmt: skip


def test_windows_of_removed_days_do_not_wait_after_a_restart(tmp_path: Path, followed: list[list[int]]) -> None:
    restarted = new(tmp_path, 2)
    assert restarted.add([window("03 10:01")], PARTS, {"": at("03 10:02")}, ["z"]) == []
    assert followed == [[at("03 10:01")]]
    assert incomplete(tmp_path) == {"2026-11-02": False, "2026-11-03": True}


def test_follower_that_keeps_more_days_adds_removed_ones_again(tmp_path: Path, followed: list[list[int]]) -> None:
    new(tmp_path, 3).add([window("03 10:01")], PARTS, {"": at("03 10:02")}, ["z"])
    assert followed == [[at("01 10:00"), at("03 10:01")]]
    assert incomplete(tmp_path) == {"2026-11-01": True, "2026-11-02": False, "2026-11-03": True}


@pytest.mark.parametrize("day", ["01", "02"])
def test_revision_of_an_old_window_makes_no_other_day_incomplete(
    tmp_path: Path, followed: list[list[int]], day: str
) -> None:
    one = new(tmp_path, 2)
    revised = msgspec.structs.replace(window(f"{day} 10:00"), revision=2)
    found = one.add([revised], PARTS, {"": at("03 10:02")}, ["z"])
    assert followed == [[revised.window]]
    assert incomplete(tmp_path) == {"2026-11-02": day == "02", "2026-11-03": True}
    not_added = f"1 day before 2026-11-02 not added to {tmp_path / 'lake'} (--keep-days)"
    replaced = "1 window replaced: their results of an earlier audit do not count"
    assert found == [not_added if day == "01" else replaced]
    write(tmp_path, revised)
    assert new(tmp_path, 2).add([], PARTS, {"": at("03 10:03")}, []) == []
    assert len(followed) == 1
