"""A journal writes each record before it returns, and no disk error reaches its caller."""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from pubsub_lib.core.model import Point, Record
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import Row
from pubsub_lib.journal.settings import JournalSettings
from pubsub_lib.journal.writer import SLICE, Journal, _forget_parent, _Run, open_journal
from tests.unit.journal.builders import envelope, files_that_end_at, link, settings

KILLED = """
import sys
from pubsub_lib.journal import Journal, JournalSettings
from tests.unit.journal.builders import envelope
journal = Journal(JournalSettings(sys.argv[1], mark_seconds=3600), "service", "s1")
for position in range(2, 10**9):
    journal.messages(("sent",), envelope(position))
    print(position, flush=True)
"""


def rows(folder: Path) -> list[Row]:
    found = find([folder])
    assert not found.parquet
    return sorted((row for path in found.append for row in read(path)), key=lambda row: (row.run, row.number))


def kinds(found: Sequence[Row]) -> list[str]:
    return [row.kind for row in found]


def run_of(journal: Journal) -> _Run:
    return journal._run()


def test_no_journal_is_opened_without_a_folder(tmp_path: Path) -> None:
    assert open_journal(JournalSettings(), "writer", "w") is None
    journal = open_journal(settings(tmp_path), "writer", "w")
    assert journal is not None
    journal.close()
    assert kinds(rows(tmp_path)) == ["open", "close"]


def test_records_are_numbered_from_open_to_close(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "replica", "controller-1")
    journal.note("interest", topic="t1")
    journal.messages(("applied",), envelope(7, 8, 9))
    journal.links("applied", [link(10)], cause="delta")
    journal.links("applied", [])
    journal.note("sync_end", topic="t1", sequence=3, outcome="delta", point=Point(10, 6), count=1)
    run_of(journal).maintain()
    journal.close()
    journal.close()
    journal.note("hello")
    found = rows(tmp_path)
    assert kinds(found) == ["open", "interest", "data", "data", "data", "data", "sync_end", "mark", "close"]
    assert [row.number for row in found] == list(range(1, 10))
    assert {(row.side, row.name, row.run) for row in found} == {("replica", "controller-1", journal.run)}
    assert journal.counters() == {"written": 9, "lost": 0}
    assert journal.error == ""


def test_listing_ends_with_its_number_of_objects(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "replica", "r")
    journal.listing(4, "t1", Point(9, 8), [Record("lport", f"p{index}", 1, b"1") for index in range(SLICE + 1)])
    journal.listing(5, "t2", Point(9, 8), [])
    journal.close()
    found = [row for row in rows(tmp_path) if row.kind in ("object", "listing")]
    assert [row.count for row in found if row.kind == "listing"] == [SLICE + 1, 0]
    assert sum(row.kind == "object" and row.sequence == 4 for row in found) == SLICE + 1


def test_sigkill_loses_no_written_record(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 200:
                process.kill()
                break
        printed = [int(each) for each in (line, *process.stdout.read().split()) if each.strip()]
        process.wait()
    assert process.returncode == -signal.SIGKILL
    found = [row for row in rows(tmp_path) if row.kind == "data"]
    assert [row.position for row in found] == list(range(2, found[-1].position + 1))
    assert found[-1].position >= printed[-1]


def test_forked_child_has_its_own_run(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "writer", "w")
    journal.links("handed", [link(7)])
    with run_of(journal).lock:  # as if another thread were writing now
        pid = os.fork()
        if pid == 0:
            journal.links("handed", [link(8)])
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    journal.links("handed", [link(9)])
    journal.close()
    found = [row for row in rows(tmp_path) if row.kind == "data"]
    runs = {row.position: row.run for row in found}
    assert runs[7] == runs[9] == journal.run != runs[8]


WITHOUT_CLOSE = """
import multiprocessing, os, sys
from pubsub_lib.journal import Journal, JournalSettings

journal = Journal(JournalSettings(sys.argv[1], to_parquet=False), "writer", "w")
multiprocessing.set_start_method("fork")
worker = multiprocessing.Process(target=journal.note, args=("hello",), kwargs={"peer": "process"})
worker.start()
worker.join()
pid = os.fork()
journal.note("hello", peer="parent" if pid else "child")
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_process_end_without_close_writes_the_close_record(tmp_path: Path) -> None:
    """A worker of multiprocessing, a bare fork's child, and the process that forked them."""
    subprocess.run([sys.executable, "-c", WITHOUT_CLOSE, str(tmp_path)], check=True, timeout=60)
    runs: dict[str, list[str]] = {}
    for row in rows(tmp_path):
        if row.kind != "mark":  # a slow run has some
            runs.setdefault(row.run, []).append(row.peer or row.kind)
    assert sorted(runs.values()) == [["open", who, "close"] for who in ("child", "parent", "process")]


def test_file_of_an_idle_participant_begins_with_a_record(tmp_path: Path) -> None:
    """A copy of a file without a record looks like one whose records are lost."""
    journal = Journal(settings(tmp_path, roll_bytes=1024), "replica", "r")
    for position in range(7, 20):
        journal.messages(("applied",), envelope(position))
    run_of(journal).maintain()
    files = sorted(tmp_path.glob("*.journal"))
    assert len(files) == 2
    assert [row.kind for row in read(files[-1])] == ["mark"]
    journal.close()


def test_marks_and_end_have_the_id_of_the_store_that_was_sent_or_read(tmp_path: Path) -> None:
    """Received messages do not count: a replica also receives those of other stores."""
    journal = Journal(settings(tmp_path), "service", "s")
    sent = msgspec.structs.replace(envelope(7), store_id=b"s" * 16)
    journal.messages(("applied",), msgspec.structs.replace(sent, store_id=b"o" * 16))
    run_of(journal).maintain()
    journal.messages(("sent",), sent)
    run_of(journal).maintain()
    journal.of_store(b"")
    run_of(journal).maintain()
    journal.of_store(b"n" * 16)
    journal.close()
    found = [(row.kind, row.peer) for row in rows(tmp_path) if row.kind in ("mark", "close")]
    ids = ["", "73" * 16, "73" * 16, "6e" * 16]
    assert found == list(zip(["mark", "mark", "mark", "close"], ids, strict=True))


def test_rejected_messages_are_recorded_once_with_the_marks(tmp_path: Path) -> None:
    journal, counted = Journal(settings(tmp_path), "replica", "r"), {"foreign": 0, "version": 2}
    journal.watch(lambda: counted)
    for foreign in (0, 3, 3):
        counted["foreign"] = foreign
        run_of(journal).maintain()
    counted["foreign"] = 4
    journal.close()
    found = [(row.kind, row.cause, row.count) for row in rows(tmp_path)[1:]]
    assert found == [
        ("reject", "version", 2), ("mark", "", 0), ("reject", "foreign", 3), ("mark", "", 0), ("mark", "", 0),
        ("reject", "foreign", 1), ("close", "", 0),
    ]  # fmt: skip


def test_failing_reject_counter_does_not_prevent_the_close_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> dict[str, int]:
        raise RuntimeError("a bug")

    journal = Journal(settings(tmp_path), "replica", "r")
    journal.watch(broken)
    run_of(journal).maintain()
    journal.close()
    assert kinds(rows(tmp_path)) == ["open", "mark", "close"]
    assert len(caplog.records) == 1


def test_concurrent_mark_and_close_record_rejects_once(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "replica", "r")
    run, counting, comparing = run_of(journal), threading.Barrier(2), threading.Barrier(2)

    class Number(int):
        def __sub__(self, recorded: int) -> int:  # both threads at once, if no lock prevents it
            with contextlib.suppress(threading.BrokenBarrierError):
                comparing.wait(0.5)
            return int(self) - recorded

    def counted() -> dict[str, int]:
        counting.wait(20)
        return {"foreign": Number(3)}

    journal.watch(counted)
    marks = threading.Thread(target=run.maintain)
    marks.start()
    journal.close()
    marks.join()
    found = rows(tmp_path)
    assert [row.count for row in found if row.kind == "reject"] == [3]
    assert found[-1].kind == "close"


def test_record_between_close_and_release_is_ignored(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "replica", "r")
    run_of(journal).put("close")
    journal.note("hello")
    journal.close()
    assert kinds(rows(tmp_path)) == ["open", "close"]


def test_only_the_unencodable_record_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(settings(tmp_path), "replica", "r")
    for peer in ("a", "\ud800", "\udfff", "b"):
        journal.note("hello", peer=peer)
    journal.close()
    assert [(row.number, row.peer) for row in rows(tmp_path)] == [(1, ""), (2, "a"), (5, "b"), (6, "")]
    assert journal.counters() == {"written": 4, "lost": 2}
    assert len(caplog.records) == 1


def test_name_that_is_not_a_string_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(settings(tmp_path), "replica", "\ud800")
    journal.note("hello")
    journal.close()
    assert journal.counters() == {"written": 0, "lost": 3}
    assert "surrogates not allowed" in journal.error
    assert len(caplog.records) == 1


def test_descendant_with_an_ancestors_process_id_has_its_own_run(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "writer", "w")
    ancestors = run_of(journal)
    _forget_parent(journal)  # as after forks, in a process with the same id
    journal.note("hello")
    assert journal.run != ancestors.run
    ancestors._end()  # inherited, like the handlers at the end of the process
    journal.close()
    found = {run: [row.kind for row in rows(tmp_path) if row.run == run] for run in (ancestors.run, journal.run)}
    assert found == {ancestors.run: ["open"], journal.run: ["open", "hello", "close"]}


def test_missing_interpreter_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", None)
    journal = Journal(msgspec.structs.replace(settings(tmp_path, roll_bytes=1), to_parquet=True), "writer", "w")
    for _ in range(2):
        run_of(journal).maintain()
    journal.close()
    assert [record.getMessage().count("to_parquet") for record in caplog.records] == [1]


def test_threads_share_the_numbers_without_holes(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "service", "s")

    def write() -> None:
        for _ in range(200):
            journal.messages(("sent",), envelope(7, 8))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert [row.number for row in rows(tmp_path)] == list(range(1, 1603))


def test_full_disk_loses_records_and_leaves_a_gap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(settings(tmp_path), "service", "s")
    with files_that_end_at(20_000):
        while not journal.error:
            journal.messages(("sent",), envelope(*range(7, 107)))
        journal.messages(("sent",), envelope(7))
    assert journal.error == "File too large"
    lost = journal.counters()["lost"]
    assert lost == 101
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "free disk space" in caplog.text
    again(journal)
    journal.messages(("sent",), envelope(8))
    assert journal.error == ""
    journal.close()
    found = rows(tmp_path)
    assert len(found) == journal.counters()["written"]
    assert found[-1].number == len(found) + lost  # the hole
    (hole,) = [(one, next_) for one, next_ in pairwise(row.number for row in found) if next_ != one + 1]
    assert hole[1] - hole[0] == lost + 1
    assert len(caplog.records) == 1


def test_compaction_runs_while_a_full_disk_prevents_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise files that retention could remove would keep the disk full."""
    started: list[list[str]] = []

    class Roller:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Roller)
    journal = Journal(msgspec.structs.replace(settings(tmp_path), to_parquet=True), "service", "s")
    run_of(journal).maintain()
    assert started == []
    with files_that_end_at(10):
        while not journal.error:
            journal.messages(("sent",), envelope(7))
        for _ in range(2):
            again(journal)
            run_of(journal).maintain()
            assert [command[2:4] for command in started] == [["pubsub_lib.journal.compaction", str(tmp_path)]]
        run_of(journal).roller.started -= journal._settings.roll_seconds
        run_of(journal).maintain()
    assert len(started) == 2
    journal.close()
    run_of(journal).maintain()
    assert len(started) == 2


def again(journal: Journal) -> None:
    """Let time pass since the last attempt."""
    run_of(journal)._opened -= 2 * run_of(journal).mark_seconds


def test_missing_folder_that_cannot_be_created_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    journal = Journal(settings(tmp_path / "file" / "journals"), "replica", "r")
    journal.messages(("applied",), envelope(7, 8))
    assert journal.counters() == {"written": 0, "lost": 3}
    assert journal.error == "Not a directory"
    assert len(caplog.records) == 1
    (tmp_path / "file").unlink()
    again(journal)
    journal.note("hello")
    journal.close()
    assert [(row.number, row.kind) for row in rows(tmp_path / "file" / "journals")] == [(4, "hello"), (5, "close")]
    (path,) = (tmp_path / "file" / "journals").iterdir()
    assert path.stem.endswith("-000001"), "a number without a file would look like a lost file"


def test_removed_folder_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal = Journal(settings(folder, roll_bytes=1), "replica", "r")
    shutil.rmtree(folder)
    run_of(journal).maintain()  # opens a file in a folder that is created again
    journal.note("hello")
    journal.close()
    assert kinds(rows(folder)) == ["mark", "hello", "close"]


def test_large_file_is_finished_and_numbering_continues(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path, roll_bytes=500), "service", "s")
    for position in range(7, 27):
        journal.messages(("sent",), envelope(position))
        run_of(journal).maintain()
    journal.close()
    parts = len(find([tmp_path]).append)
    assert parts > 3
    found = rows(tmp_path)
    assert [row.number for row in found] == list(range(1, len(found) + 1))
    assert sum(row.kind == "mark" for row in found) == 20 + parts - 1, "each further part begins with one"


def test_journal_thread_writes_marks_and_parquet(tmp_path: Path) -> None:
    brisk = msgspec.structs.replace(settings(tmp_path, mark_seconds=0.01, roll_bytes=300), to_parquet=True)
    journal = Journal(brisk, "service", "s")
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*.parquet")):
        assert time.monotonic() < until, "no file was compacted"
        threading.Event().wait(0.05)
    run = run_of(journal)
    journal.close()
    assert run.roller.process is not None
    assert run.roller.process.wait(60) == 0
    found = find([tmp_path])
    numbers = sorted({row.number for path in (*found.parquet, *found.append) for row in read(path)})
    assert numbers == list(range(1, numbers[-1] + 1))
    assert len(numbers) == journal.counters()["written"]
