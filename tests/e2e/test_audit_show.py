"""``pubsub-audit show`` on journals that a publisher and a replica wrote: the way of an object between them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pubsub_lib import Publisher, Replica, Settings, Store, Timing, Transaction
from pubsub_lib.journal import JournalSettings
from pubsub_lib.journal.compaction import compact

ROOT = Path(__file__).resolve().parents[2]
LONG = 120.0


def show(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """As the installed command, in an environment without Java."""
    code = "import sys; from pubsub_lib.scripts import pubsub_audit; sys.exit(pubsub_audit())"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "drivers")))
    return subprocess.run(
        [sys.executable, "-c", code, "show", *map(str, arguments)],
        env={"PYTHONPATH": path, "PATH": ""}, capture_output=True, text=True, check=False, timeout=LONG,
    )  # fmt: skip


def records(*arguments: object) -> list[dict[str, Any]]:
    done = show(*arguments, "-f", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def trail(folder: Path, side: str) -> list[tuple[str, str, int | None, int]]:
    """Of each message about lport/p1: outcome, action, replaced version, version."""
    return [
        (row["outcome"], change["action"], change["before"], change["version"])
        for row in records(folder, "--topic", "tenant-1", "--table", "lport", "--key", "p1", "--kind", "data")
        for change in row["changes"]
        if row["side"] == side and change["key"] == "p1"
    ]


def position(tx: Transaction) -> int:
    """Of the last change of a committed transaction."""
    assert tx.commit is not None
    return tx.commit.point.position


def written(url: str, folder: Path) -> tuple[int, int, int]:
    """Write, change and delete lport/p1 with a publisher and a replica. Returns its versions. The journals are also
    looked into while they are being written.
    """
    settings = Settings(
        store_url=url, driver="memory", service_name="api-1", replica_name="r1", timing=Timing(max_idle_time=1.0),
        journal=JournalSettings(str(folder), to_parquet=False),
    )  # fmt: skip
    with Store(settings) as store, Publisher(settings, store), Replica(settings, ["tenant-1"]) as replica:
        replica.wait_synced(LONG)
        with store.transaction() as tx:
            tx.set("lport", "p1", {"switch": "s1"}, topic="tenant-1")
            tx.set("lport", "p2", {"switch": "s1"}, topic="tenant-1")
        first = position(tx) - 1
        with store.transaction() as tx:
            tx.update("lport", "p1", {"switch": "s2"})
        second = position(tx)
        with store.transaction() as tx:
            tx.delete("lport", "p1")
        replica.wait_for(tx.commit, LONG)
        running = show(folder)
        assert (running.returncode, running.stderr) == (0, "")
        assert running.stdout.count(", being written\n") == 2
    return first, second, position(tx)


def test_trail_of_an_object_through_real_journals(sqlite_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    first, second, last = written(sqlite_url, folder)
    expected = [
        ("applied", "create", None, first),
        ("applied", "set", first, second),
        ("applied", "delete", second, last),
    ]
    for _ in ("append files", "Parquet"):
        assert trail(folder, "replica") == expected
        assert [each[1::2] for each in trail(folder, "writer") if each[0] == "sent"] == [
            each[1::2] for each in expected
        ]
        assert {row["side"] for row in records(folder, "--kind", "close")} == {"writer", "replica"}
        compact(folder)
    assert {each.suffix for each in folder.iterdir()} == {".parquet"}
    table = show(folder, "--key", "p1")
    assert table.returncode == 0
    assert f"delete     {second}->{last}" in table.stdout


def test_damaged_journal_is_named_and_the_other_one_shown(sqlite_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    written(sqlite_url, folder)
    (writer,) = {row["file"] for row in records(folder) if row["side"] == "writer"}
    with Path(writer).open("r+b") as file:
        file.truncate(Path(writer).stat().st_size - 3)
    done = show(folder)
    assert done.returncode == 32
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"pubsub-audit: {writer} ends in the middle of a record: ")
    assert "replica r1 on " in done.stdout
    assert "Traceback" not in done.stderr
