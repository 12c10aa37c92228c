"""The command ``pubsub-audit follow``: output, exit codes, and invalid options."""

import errno
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from pubsub_lib.audit.command_line import parser
from pubsub_lib.audit.lake.folder import prepare
from pubsub_lib.audit.main import main
from pubsub_lib.audit.report.summary import Balance
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.stream import command
from pubsub_lib.audit.stream.feed import Feed
from pubsub_lib.audit.stream.findings import folder_of_findings, last_findings
from pubsub_lib.audit.stream.loop import AuditLoop, Round, State
from pubsub_lib.audit.stream.output import Output
from pubsub_lib.audit.stream.windows import SUMMARY, Closed, place_of, written
from pubsub_lib.command.stop_signal import StopSignal
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.errors import ConfigError, StoreError
from pubsub_lib.journal import writer
from pubsub_lib.journal.compaction import compact, write_parquet
from pubsub_lib.journal.entries import beginning
from pubsub_lib.journal.parquet_metadata import RECORDS_KEY, SCHEMA_KEY
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, seal
from pubsub_lib.journal.writer import Journal
from pubsub_lib.store import Store
from tests.unit.audit.denied import deny
from tests.unit.audit.stream.test_output import CAME, LATE, LOST, POLLED, REPAIRED, STRAY, TWICE, window
from tests.unit.audit.test_main import Clock, lossy_journals
from tests.unit.journal.builders import HEADER, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUND = ["--bound", "10"]


def test_summary_of_a_window() -> None:
    closed = window(LOST, CAME, POLLED, REPAIRED, LATE, TWICE, STRAY)
    assert closed.balance == Balance(expected=18, delivered=13, repaired=3, lost=2)
    assert closed.balance.holds
    assert (closed.anomalies, closed.exit_code) == (2 + 3 + 1 + 1, 1 + 2 + 8)
    assert window(TWICE).anomalies == window(TWICE).exit_code == 0
    assert (window(TWICE, strict=True).anomalies, window(TWICE, strict=True).exit_code) == (1, 16)


def test_new_folders_of_the_follower_are_for_its_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "session", no_spark)
    out, journals = tmp_path / "out", tmp_path / "journals"
    journals.mkdir()
    options = parser().parse_args(["follow", str(journals), "--out", str(out)])
    old = os.umask(0o022)
    try:
        with pytest.raises(KeyboardInterrupt):
            command.run(options, AuditSettings(), {"": [journals]})
    finally:
        os.umask(old)
    assert {path.stat().st_mode & 0o777 for path in (out, out / "checkpoint")} == {0o700}


def followed(tmp_path: Path, *more: str) -> int:
    """Run the loop without Spark; the test supplies the rounds."""
    out = tmp_path / "out"
    options = parser().parse_args(["follow", str(tmp_path), "--out", str(out), "--every", "0", "--bound", "10", *more])
    options.expected = []
    (out / "checkpoint").mkdir(parents=True, exist_ok=True)
    nothing = cast("SparkSession", None)
    return command._run(options, AuditSettings(), {"": [tmp_path]}, out / "checkpoint", nothing, "")


def rounds(monkeypatch: pytest.MonkeyPatch, *found: Round | Exception) -> Iterator[Round | Exception]:
    """Replace the results of the follower's rounds; returns the results that are not used yet."""
    left = iter(found)

    def one(loop: AuditLoop, *, last: bool) -> Round:
        brought = next(left)
        if isinstance(brought, Exception):
            raise brought
        return brought

    monkeypatch.setattr(AuditLoop, "round", one)
    return left


def test_output_that_cannot_be_written_ends_the_follower_with_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = rounds(monkeypatch, Round([window(CAME), window(LOST)], [], {}), Round([], [], {}))
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device, for its write
        monkeypatch.setattr(sys, "stdout", full)
        assert followed(tmp_path) == 1 + 32
    assert len(list(left)) == 1
    assert capsys.readouterr().err == (
        "pubsub-audit: the output cannot be written (No space left on device); free disk space and start follow again; "
        f"all closed windows are in {tmp_path}/out\n"
    )


def windows_read(monkeypatch: pytest.MonkeyPatch, *found: Sequence[Closed] | OSError) -> None:
    """Replace the results of reading the windows in the folder."""
    answers = iter(found)

    def read_windows(_: Path) -> Sequence[Closed]:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("pubsub_lib.audit.stream.windows.written", read_windows)


def test_windows_that_cannot_be_read_at_the_end_make_the_result_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds(monkeypatch, Round([], [], {}))
    windows_read(monkeypatch, [window(LOST)], [], OSError(errno.EIO, os.strerror(errno.EIO), "summary.json"))
    (tmp_path / "out" / "checkpoint").mkdir(parents=True)
    saved = State(AuditSettings(), closed={"net": 2_000_000 * SECOND})
    (tmp_path / "out" / "checkpoint" / "state.json").write_bytes(msgspec.json.encode(saved))
    assert followed(tmp_path, "--once") == 1 + 32
    assert capsys.readouterr().err == (
        "pubsub-audit: summary.json cannot be read (Input/output error); correct its disk and start follow again\n"
    )


def test_checkpoint_is_free_after_a_start_that_failed(tmp_path: Path) -> None:
    place = place_of(tmp_path / "out", "net", 0)
    place.mkdir(parents=True)
    (place / SUMMARY).write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(ConfigError, match="is not the result of a window"):
            followed(tmp_path)


def test_windows_that_cannot_be_read_are_returned_by_a_later_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missed, new = window(LOST), window(CAME, begin=2_000_000)
    output = Output([], as_json=True, settings=AuditSettings())
    loop = cast("AuditLoop", SimpleNamespace(round=lambda *, last: Round([new], ["x is garbage"], {})))
    windows_read(monkeypatch, OSError(errno.EIO, os.strerror(errno.EIO), "summary.json"), [missed, new])
    assert command._round(loop, output, tmp_path, last=False)
    found = capsys.readouterr()
    assert [msgspec.json.decode(line)["window"] for line in found.out.splitlines()] == [new.window]
    assert found.err == (
        "pubsub-audit: summary.json cannot be read (Input/output error); it is retried\npubsub-audit: x is garbage\n"
    )
    loop.round = lambda *, last: Round([], [], {})  # type: ignore[method-assign, assignment, misc]
    assert command._round(loop, output, tmp_path, last=False)
    assert [msgspec.json.decode(line)["window"] for line in capsys.readouterr().out.splitlines()] == [missed.window]


def test_closed_pipe_ends_the_follower_without_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds(monkeypatch, Round([window(CAME)], [], {}))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:  # closing flushes, as the interpreter does at its end
        monkeypatch.setattr(sys, "stdout", pipe)
        assert followed(tmp_path) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "[Errno 111] Connection refused"),
        (Py4JNetworkError("Answer from Java side is empty"), "Answer from Java side is empty"),
        (Py4JError("An error occurred while calling o1.conf"), "An error occurred while calling o1.conf"),
    ],
)
def test_follower_ends_with_one_sentence_when_java_has_ended(
    error: Exception, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could not take in any file again."""

    class Dead:
        def stop(self) -> None:
            raise error

    monkeypatch.setattr(command, "session", lambda *_, **__: (Dead(), True))
    left = rounds(monkeypatch, Round([window(LOST)], [], {}), error, Round([], [], {}))
    assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out"), "--every", "0", *BOUND]) == 1 + 32
    assert len(list(left)) == 1
    assert capsys.readouterr().err == (
        f"pubsub-audit: Spark's Java process ended ({why}); if the system killed it because memory was short, give "
        "less --memory or add memory; start follow again, no result is lost\n"
    )


def test_windows_of_a_failed_round_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their folders are written before the state is saved, and later rounds do not return them."""

    def broken(loop: AuditLoop, *, last: bool) -> Round:
        place = place_of(tmp_path / "out", "net", 60 * SECOND)
        place.mkdir(parents=True)
        (place / SUMMARY).write_bytes(msgspec.json.encode(window(LOST)))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "state.json")

    monkeypatch.setattr(AuditLoop, "round", broken)
    assert followed(tmp_path, "--once") == 1 + 32
    assert capsys.readouterr().err == (
        "pubsub-audit: state.json cannot be used (No space left on device); it is retried\n"
    )


def keep(out: Path, closed: Closed) -> None:
    """Write a window, as a round does that may fail afterwards."""
    place = place_of(out, *closed.key, closed.revision)
    place.mkdir(parents=True)
    (place / SUMMARY).write_bytes(msgspec.json.encode(closed))


@pytest.mark.parametrize("killed", [False, True])
def test_next_round_returns_the_windows_of_a_failed_one(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each window is printed once and goes into the lake, also when a follower was killed before it saved its state."""
    out, fed = tmp_path / "out", list[list[Closed]]()
    earlier, lost, late = (window(each, begin=begin) for each, begin in ((CAME, 940), (LOST, 1000), (LATE, 1060)))
    keep(out, earlier)
    (out / "checkpoint").mkdir()
    saved = State(AuditSettings(), closed={"net": 1000 * SECOND})
    (out / "checkpoint" / "state.json").write_bytes(msgspec.json.encode(saved))
    if killed:
        keep(out, lost)

    def one(loop: AuditLoop, *, last: bool) -> Round:
        if not place_of(out, *lost.key).exists():
            keep(out, lost)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "state.json")
        if not place_of(out, *late.key).exists():
            keep(out, late)
            return Round([late], [], {})
        os.kill(os.getpid(), signal.SIGTERM)
        return Round([], [], {})

    def add(_: Feed, closed: Sequence[Closed], *_more: object) -> list[str]:
        fed.append(list(closed))
        return []

    monkeypatch.setattr(AuditLoop, "round", one)
    monkeypatch.setattr(Feed, "add", add)
    prepare(tmp_path / "lake", 60 * SECOND)
    assert followed(tmp_path, "--append", str(tmp_path / "lake"), "-f", "json") == 1 + 8
    lines = [msgspec.json.decode(each) for each in capsys.readouterr().out.splitlines()]
    assert [each["window"] for each in lines] == [lost.window, late.window]
    assert fed == [[lost, late], []]


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_follower_after_the_round(
    which: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    before = signal.getsignal(which)

    def interrupted(loop: AuditLoop, *, last: bool) -> Round:
        os.kill(os.getpid(), which)
        assert signal.getsignal(which) is signal.SIG_DFL, "a second one ends the process"
        return Round([window(LOST)], [], {})

    monkeypatch.setattr(AuditLoop, "round", interrupted)
    assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out"), "--every", "1000", *BOUND]) == 1
    assert signal.getsignal(which) is before


def test_empty_folder_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession") -> None:
    (tmp_path / "journals").mkdir()
    assert main(["follow", str(tmp_path / "journals"), "--out", str(tmp_path / "out"), "--once"]) == 32
    assert capsys.readouterr().out == ""


def test_cut_file_is_reported_and_counts_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder = tmp_path / "journals"
    one = Journal(settings(folder), "replica", "r")
    one.close()
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-2])
    os.utime(path, (1.0, 1.0))  # no program is copying it
    command = ["follow", str(folder), "--out", str(tmp_path / "out"), "--once", *BOUND]
    assert main(command) & 32
    assert f"{path.stem} ends in the middle of a record: 1 whole record was read" in capsys.readouterr().err
    path.unlink()
    assert main(command) & 32
    assert "in the middle" not in capsys.readouterr().err, "it is reported once"


@pytest.mark.long
def test_part_without_a_record_is_missing_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    """Its process was killed after it had begun the second part on a full disk."""
    one = Journal(settings(tmp_path / "journals"), "replica", "r")
    one.close()
    (first,) = (tmp_path / "journals").iterdir()
    second = first.with_name(f"{one.run}-000002.journal")
    second.write_bytes(beginning(HEADER))
    os.utime(second, (1.0, 1.0))
    command = ["follow", str(tmp_path / "journals"), "--out", str(tmp_path / "out"), "--once", *BOUND]
    assert main(command) & 32
    assert f"{second.stem} has no whole record, as after a full disk" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("late", ["finished", "being written"])
def test_participant_without_a_journal_counts_as_for_run_until_it_appears(
    late: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, out, roster = tmp_path / "journals", tmp_path / "out", tmp_path / "expected"
    lossy_journals(folder, monkeypatch)
    roster.write_text("service s1\nreplica r1\nreplica r2\n")
    run = ["run", str(folder), "--expect", str(roster), "-f", "json", *BOUND]
    follow = ["follow", str(folder), "--expect", str(roster), "--out", str(out), "--once", *BOUND]

    def both() -> tuple[int, list[str]]:
        """The exit code of both commands, and the problems; each must give the same."""
        code = main(run)
        problems = msgspec.json.decode(capsys.readouterr().out)["problems"]
        assert main(follow) == code
        lines = [each for each in capsys.readouterr().err.splitlines() if " wait for the run " not in each]
        assert lines == [f"pubsub-audit: {each}" for each in problems]
        return code, problems

    absent = "the replica r2 is expected (--expect) and has no journal; add its journals, or correct the file"
    assert both() == (33, [absent])
    before = {each.key: each for each in written(out)}
    monkeypatch.setattr(writer, "time", time)  # later than the closed windows
    appears = Journal(settings(folder), "replica", "r2")
    if late == "finished":
        appears.close()
    assert both() == (1, [])
    assert {each.key: each for each in written(out)}.items() >= before.items(), "no verdict depends on it"
    appears.close()


@pytest.mark.long
def test_absent_participant_is_named_at_the_end_without_a_closed_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder, roster = tmp_path / "journals", tmp_path / "expected"
    Journal(settings(folder), "replica", "r1").close()
    roster.write_text("replica r1\nreplica r2\n")
    command = ["follow", str(folder), "--expect", str(roster), "--out", str(tmp_path / "out"), "--once", *BOUND]
    assert main(command) == 32
    assert "the replica r2 is expected" in capsys.readouterr().err, "also when no window is closed, at the end"


def test_expected_participants_of_several_domains_are_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "expected").write_text("replica r1\n")
    out = ["--out", str(tmp_path / "out")]
    assert main(["follow", f"a={tmp_path}", f"b={tmp_path}", "--expect", str(tmp_path / "expected"), *out]) == 64
    assert "but the journals have 2; audit each alone" in capsys.readouterr().err
    assert main(["follow", str(tmp_path), "--expect", str(tmp_path / "gone"), *out]) == 64
    assert not (tmp_path / "out").exists()


def unpublished(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The journals of three commits, of which the second one was not published, and their store."""
    clock = Clock()
    clock.now = time.time_ns()
    monkeypatch.setattr(writer, "time", clock)
    service, replica = Journal(settings(folder), "service", "s1"), Journal(settings(folder), "replica", "r1")
    replica.note("interest", topic="t1")
    replica.note("sync_end", topic="t1", sequence=1, outcome="full")
    with Store(url) as store:
        for number in (1, 2, 3):
            with store.transaction(origin="s1") as tx:
                tx.set("item", f"k{number}", number, topic="t1")
            assert tx.commit is not None
            if number != 2:
                sent = Envelope("s1", "ab" * 16, "t1", (number + 1) // 2, [Message(each) for each in tx.commit.links])
                service.messages(("sent",), sent)
                replica.messages(("applied",), sent)
        held = store.inspect.contents()
    for _ in range(3000):
        replica.note("mark")
    replica.listing(1, "t1", held.head, [each for each in held.topics["t1"].records if each.key != "k2"])
    service.close()
    replica.close()
    return clock


def findings_of(*folders: Path) -> list[tuple[str, str]]:
    """Table and verdict of each finding in these folders."""
    paths = [path for folder in folders for name in ("store", "state") for path in folder.glob(f"{name}/*.parquet")]
    return sorted(
        (path.parent.name, verdict)
        for path in paths
        for verdict in pq.read_table(path, partitioning=None)["verdict"].to_pylist()
    )


@pytest.mark.long
def test_follower_reads_the_store_as_run_does_and_keeps_what_the_store_trims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch,
    sqlite_url: str,
) -> None:  # fmt: skip
    folder, out = tmp_path / "journals", tmp_path / "out"
    clock = unpublished(folder, sqlite_url, monkeypatch)
    store = ["--store", sqlite_url]
    command = ["follow", str(folder), "--out", str(out), "--once", *BOUND]
    expected = [("state", "missing"), ("store", "unpublished")]
    assert main(["run", str(folder), *store, "--out", str(tmp_path / "batch"), *BOUND]) == 1 + 4
    assert findings_of(tmp_path / "batch") == expected
    capsys.readouterr()
    assert main([*command, *store]) == 1 + 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(": 1 missing of state, 1 unpublished of store; exit code so far 5")
    (found,) = last_findings(out)
    assert findings_of(folder_of_findings(out, "", found.number)) == expected
    assert sum(each.balance.lost for each in written(out)) == 1
    with Store(sqlite_url) as of_journals:
        of_journals.trim(keep_links=1)
    assert main(["run", str(folder), *store, *BOUND]) & 1 == 0, "its changelog lacks the commit"
    clock.now += 1000 * 10**9  # after the closed windows
    appears = Journal(settings(folder), "replica", "r2")
    for _ in range(3000):
        appears.note("mark")
    appears.close()
    assert main([*command, *store]) == 1 + 4
    assert {each.revision for each in written(out)} == {1}
    (again,) = last_findings(out)
    assert (again.number, again.counts) == (2, found.counts)
    capsys.readouterr()
    assert main(command) == 64
    assert capsys.readouterr().err == (
        f"pubsub-audit: {out / 'checkpoint'} was made with --store; give it again, or name another --out\n"
    )


@pytest.mark.long
def test_empty_store_is_a_problem_of_the_follower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch,
    sqlite_url: str,
) -> None:  # fmt: skip
    Store(sqlite_url).close()
    lossy_journals(tmp_path / "journals", monkeypatch)
    command = ["follow", str(tmp_path / "journals"), "--store", sqlite_url, "--out", str(tmp_path / "out"), "--once"]
    assert main([*command, *BOUND]) == 1 + 32
    assert "has neither objects nor a changelog, but the journals have messages" in capsys.readouterr().err


def test_windows_wait_until_the_store_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = rounds(monkeypatch, StoreError("the database is gone"), Round([window(CAME)], [], {}))
    stops = iter((False, True))
    monkeypatch.setattr(StopSignal, "wait", lambda *_: next(stops))
    assert followed(tmp_path) == 0
    assert not [*left]
    assert capsys.readouterr().err == (
        "pubsub-audit: the database is gone; windows wait, and the round is retried\n"
    )
    rounds(monkeypatch, StoreError("the database is gone"))
    assert followed(tmp_path, "--once") & 32


def test_store_of_several_domains_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main(["follow", f"a={tmp_path}", f"b={tmp_path}", "--store", "sqlite:///x", *out]) == 64
    assert "--store names one database, but the journals have 2 domains" in capsys.readouterr().err
    assert main(["follow", str(tmp_path), "--store", "", *out]) == 64
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("form", [".journal", ".parquet"])
def test_journals_that_are_being_copied_do_not_count_as_damaged(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    source, folder, out = tmp_path / "source", tmp_path / "journals", tmp_path / "out"
    lossy_journals(source, monkeypatch)
    if form == ".parquet":
        compact(source)
    folder.mkdir()
    command = ["follow", str(folder), "--out", str(out), "--once", *BOUND]
    for share in (0.01, 0.6, 0.999, 1):
        for path in source.iterdir():
            content = path.read_bytes()
            (folder / path.name).write_bytes(content[: int(len(content) * share)])
        assert main(command) == (32 if share < 1 else 1), share
        for line in capsys.readouterr().err.splitlines():
            waits = line.startswith("pubsub-audit: windows wait for the run ")
            assert waits or (share < 1 and "may still be copied and was not read" in line), share
    (closed,) = written(out)
    assert (closed.balance.expected, closed.balance.lost) == (3, 1)


@pytest.mark.long
def test_renamed_file_is_read_as_before_and_a_copy_is_reported_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three parts: the first and the third one have names that show their places."""
    folder = tmp_path / "journals"
    lossy_journals(folder, monkeypatch)
    compact(folder)
    (path,) = [each for each in folder.iterdir() if next(read(each)).side == "replica"]
    write_parts(path, [(0, 3), (3, 500), (500, 2000)])
    renamed = (folder / f"{path.stem[:-6]}000002.parquet").rename(folder / "from host 2.parquet")
    command = ["follow", str(folder), "--once", "--patience", "0", *BOUND]
    assert main([*command, "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == ""
    assert sum(each.balance.lost for each in written(tmp_path / "out")) == 1
    (folder / "z.parquet").write_bytes(renamed.read_bytes())
    for out in ("out", "new"):
        assert main([*command, "--out", str(tmp_path / out)]) == 1 + 32
        sentence = "z is a copy of from host 2 under another name and ignored; remove one of them"
        assert capsys.readouterr().err == f"pubsub-audit: {sentence}\n"
    assert {each.key: each.counts for each in written(tmp_path / "new")} == {
        each.key: each.counts for each in written(tmp_path / "out")
    }


def write_parts(path: Path, places: Sequence[tuple[int, int]]) -> None:
    """Write these rows of a journal file as its parts, in place of its first one."""
    rows = pq.read_table(path)
    for number, (begin, end) in enumerate(places, 1):
        part = rows.slice(begin, end - begin)
        about = {SCHEMA_KEY: b"1", RECORDS_KEY: str(part.num_rows).encode(), CHECKSUM_KEY: UNSEALED}
        target = path.with_name(f"{path.stem[:-6]}{number:06d}.parquet")
        pq.write_table(part.replace_schema_metadata(about), target)
        seal(target)


@pytest.mark.long
def test_record_in_two_files_counts_once(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One file repeats the end of another one and goes on, or disagrees with it."""
    folder, out = tmp_path / "journals", tmp_path / "out"
    lossy_journals(folder, monkeypatch)
    compact(folder)
    (path,) = [each for each in folder.iterdir() if next(read(each)).side == "replica"]
    rows = pq.read_table(path).num_rows
    write_parts(path, [(0, rows // 2), (2, rows)])
    command = ["follow", str(folder), "--out", str(out), "--once", *BOUND]
    assert main(command) == 1
    assert {each.balance.lost: each.anomalies for each in written(out)}[1] == 1, "no message was applied twice"
    assert capsys.readouterr().err == ""


def test_unreadable_files_alone_are_reported_and_end_with_32(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder, out = tmp_path / "journals", tmp_path / "out"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"PAR1 nonsense")
    os.utime(folder / "a.parquet", (1.0, 1.0))
    command = ["follow", str(folder), str(tmp_path / "gone"), "--out", str(out), "--once", *BOUND]
    assert main(command) == 32
    output = capsys.readouterr()
    assert output.out == ""
    assert f"{folder}/a.parquet is not a complete Parquet file; remove it or copy it again" in output.err
    assert f"the journals' folder {tmp_path}/gone cannot be read (No such file or directory)" in output.err
    assert "Traceback" not in output.err
    assert main([*command, "--bound", "11"]) == 64
    assert "use these settings, or name another --checkpoint and another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--every", "-1"], "--every is -1.0; it cannot be negative"),
        (["--every", "1e10"], f"--every is 10000000000.0; it can be {threading.TIMEOUT_MAX} at most"),
        (["--window", "0"], "window is 0 microseconds; it must be at least 1"),
    ],
)
def test_invalid_values_are_64(
    options: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out"), *options]) == 64
    assert capsys.readouterr().err == f"pubsub-audit: {error}\n"


@pytest.mark.parametrize("option", ["--every", "--patience"])
@pytest.mark.parametrize("value", ["nan", "inf", "soon"])
def test_invalid_number_of_seconds_is_64(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["follow", str(tmp_path), "--out", str(tmp_path / "out"), option, value])
    assert ended.value.code == 64
    assert capsys.readouterr().err.endswith(f"argument {option}: '{value}' is not a number of seconds\n")


@pytest.mark.parametrize("content", [b"", b'{"settings":{"win', b"\0" * 64], ids=["empty", "cut", "zeros"])
@pytest.mark.parametrize("name", ["state.json", "append.json", SUMMARY])
def test_file_that_a_power_loss_has_torn_gives_one_sentence(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "session", lambda *_, **__: (None, False))
    monkeypatch.setattr(AuditLoop, "round", lambda *_, **__: Round([], [], {}))
    keep(tmp_path / "out", window(LOST))
    torn = tmp_path / "out" / "checkpoint" / name
    torn.parent.mkdir()
    if name == SUMMARY:
        torn = place_of(tmp_path / "out", *window(LOST).key) / name
    torn.write_bytes(content)
    options = ["--once", "--append", str(tmp_path / "lake"), *BOUND]
    assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out"), *options]) == 64
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"pubsub-audit: {torn} is not ")
    assert torn.read_bytes() == content, "the follower does not begin again by itself"
    if name == "append.json":
        assert sentence.endswith("; remove it")
        torn.unlink()
        assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out"), *options]) != 64
    else:
        assert "; restore it from a backup, or name " in sentence
        assert sentence.endswith(" --out")
        assert main(["follow", str(tmp_path), "--out", str(tmp_path / "new"), *options]) != 64


@pytest.mark.long
def test_all_that_the_state_names_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    """A power loss after a round must leave neither an empty file nor a missing name."""
    folder, out = tmp_path / "journals", tmp_path / "out"
    lossy_journals(folder, monkeypatch)
    one = next(path for path in folder.iterdir() if next(read(path)).side == "replica")
    write_parquet(one, one.with_suffix(".parquet"))
    one.unlink()
    synced: list[int] = []
    fsync = os.fsync

    def kept(fd: int) -> None:
        fsync(fd)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", kept)
    assert main(["follow", str(folder), "--out", str(out), "--once", *BOUND]) == 1
    checkpoint = out / "checkpoint"
    there = [out, checkpoint, *out.glob("windows/**/*"), *checkpoint.glob("spool/**/*"), *checkpoint.glob("batches/*")]
    assert written(out)
    assert [path for path in there if path.stat().st_ino not in synced] == []
    assert synced[-2:] == [(checkpoint / "state.json").stat().st_ino, checkpoint.stat().st_ino]


def test_follower_refuses_windows_without_their_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / "windows").mkdir(parents=True)
    assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out")]) == 64
    assert "is missing; restore it, or name a new --out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out", "out/checkpoint/state.json", "out/checkpoint/append.json"])
def test_folder_of_another_user_is_one_sentence_and_64(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "session", lambda *_, **__: (None, False))
    arguments = ["follow", str(tmp_path), "--out", str(tmp_path / "out"), "--append", str(tmp_path / "lake")]
    deny(monkeypatch, tmp_path / name)
    assert main(arguments) == 64
    (sentence,) = capsys.readouterr().err.splitlines()
    denied = tmp_path / ("out/checkpoint" if name == "out" else name)
    assert sentence == (
        f"pubsub-audit: {denied} cannot be used (Permission denied); check its permissions and its disk"
    )


def test_checkpoint_that_cannot_be_written_is_one_sentence_and_64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(command, "session", lambda *_, **__: (None, False))
    monkeypatch.setattr("pubsub_lib.audit.stream.tables.make", full)
    assert main(["follow", str(tmp_path), "--out", str(tmp_path / "out")]) == 64
    assert re.fullmatch(
        r"pubsub-audit: \S+/out/checkpoint/\w+ cannot be used \(No space left on device\); check its permissions and "
        r"its disk\n",
        capsys.readouterr().err,
    )
