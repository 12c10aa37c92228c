"""The audit of a real controller that is stopped by SIGSTOP for longer than it takes to all horizons, and goes on."""

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.audit.ingest.store_journal import journal_of_store
from pubsub_lib.audit.main import main
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import Row
from tests.e2e.judges import JUDGES, ORACLE
from tests.e2e.service_host import LONG, Host, Watched, answer, order, pause_between_transactions, write
from tests.unit.audit.arrivals import File, write_part
from tests.unit.audit.oracle import Oracle, Verdict

SECOND = 1_000_000
WINDOW, GRACE, BOUND, SILENCE = SETTINGS = (SECOND, SECOND // 2, SECOND // 2, 60 * SECOND)
OPTIONS = ["--window", "1", "--grace", "0.5", "--bound", "0.5", "--silence", "60"]
LATE = {"ok", "late", "repaired", "excused", "reordered"}
"""Verdicts without a loss. The machine of a test may be slow, so any message may be late."""


def journals_of_a_frozen_controller(tmp_path: Path, database: str) -> tuple[list[Row], int, int]:
    """All records, and the positions before and after the messages that were sent while it was stopped."""
    folder = tmp_path / "journals"
    options: dict[str, Any] = {"journal_folder": folder, "journal_mark_seconds": 0.2, "max_idle_time": 60.0}
    host = Host(tmp_path / "api-1", database, "api-1", replica_name="agent", **options)
    other = msgspec.structs.replace(host.settings, replica_name="other")
    try:
        with Store(database) as store, Watched(other) as watched:
            service, worker, agent = host.service(), host.worker(), host.controller()
            assert answer(agent) == "synced\n"
            before = write(worker, 20)
            order(agent, before)
            assert answer(agent)
            pause_between_transactions(agent, store)
            after = write(worker, 50)
            watched.must_come_to(after, store)  # all of them are published
            horizon = time.monotonic() + (2 * BOUND + 2 * GRACE) / SECOND
            assert poll(lambda: time.monotonic() > horizon, LONG)
            agent.send_signal(signal.SIGCONT)
            last = write(worker, 5)
            order(agent, last)
            assert answer(agent)
            watched.must_come_to(last, store)
            for process in (agent, worker):
                process.communicate(timeout=LONG)  # the end of its input ends it
                assert process.returncode == 0
            service.terminate()
            assert service.wait(LONG) == 0
            assert journal_of_store(store, tmp_path / "store")
    finally:
        host.close()
    rows = [each for path in find([folder, tmp_path / "store"]).append for each in read(path)]
    return rows, before, after


def without(rows: Sequence[Row], name: str, topic: str, position: int) -> list[Row]:
    """The journals as if a replica had never got a link: the numbers have no hole."""
    found: list[Row] = []
    gone: dict[str, int] = defaultdict(int)
    for row in sorted(rows, key=lambda each: (each.run, each.number)):
        mine = (row.side, row.kind, row.name) == ("replica", "data", name)
        if mine and (row.topic, row.position) == (topic, position):
            gone[row.run] += 1
        else:
            found.append(msgspec.structs.replace(row, number=row.number - gone[row.run]))
    assert gone
    return found


@pytest.mark.parametrize("judge", JUDGES)
def test_frozen_controller_is_late_and_has_lost_nothing(judge: str, tmp_path: Path, sqlite_url: str) -> None:
    rows, before, after = journals_of_a_frozen_controller(tmp_path, sqlite_url)
    oracle = Oracle(rows, *SETTINGS)
    verdicts = Counter(each.verdict for each in oracle.delivery())
    assert verdicts.keys() <= LATE, verdicts
    missed = [each for each in oracle.delivery() if each.name == "agent" and before < each.position <= after]
    assert {(each.verdict, each.way) for each in missed} == {("late", "message")}
    assert len(missed) >= 50
    assert (oracle.strays(), oracle.store(), oracle.state(), oracle.missing(), oracle.bits()) == ([], [], [], False, 8)

    lost = missed[len(missed) // 2]
    planted = without(rows, "agent", lost.topic, lost.position)
    (guilty,) = [each for each in Oracle(planted, *SETTINGS).delivery() if each.verdict not in LATE]
    assert guilty == lost._replace(verdict="lost", detail=guilty.detail, blame="wire", way="")

    if judge != ORACLE:
        spark_agrees(tmp_path, (("true", rows, 8), ("planted", planted, 9)))


def spark_agrees(tmp_path: Path, sets: Sequence[tuple[str, list[Row], int]]) -> None:
    for folder, journals, code in sets:
        written, out = tmp_path / folder, tmp_path / f"{folder}-out"
        written.mkdir()
        for run in {row.run for row in journals}:
            write_part(written, File("", f"{run}-000001", [row for row in journals if row.run == run]))
        assert main(["run", str(written), "--out", str(out), *OPTIONS]) == code
        delivered = pq.read_table(out / "delivery", columns=list(Verdict._fields)).to_pylist()
        assert sorted(tuple(each.values()) for each in delivered) == Oracle(journals, *SETTINGS).delivery()
