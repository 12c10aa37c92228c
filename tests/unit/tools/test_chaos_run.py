"""The files of a run of ``tools/chaos``: a failed one is kept beside the results, without sockets."""

import io
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _chaos.configuration import SOCKET
from _chaos.plan import Cast, Plan
from _chaos.run import Options, Run, absent_of, unknown_of
from _databases import Database
from _routes.progress import Progress
from rich.console import Console

from pubsub_lib import Store
from pubsub_lib.errors import UsageError


def a_run(folder: Path, results: Path) -> Run:
    folder.mkdir()
    with Store(f"sqlite:///{folder / 'database.sqlite'}") as store, store.transaction() as tx:
        tx.set("item", "k", 1, topic="t")
    database = Database(f"sqlite:///{folder / 'database.sqlite'}")
    options = Options("sqlite", results=results)
    return Run(Plan(1, 1.0, Cast(), ()), options, database, folder, Progress(Console(file=io.StringIO())))


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_routes.audit.java_home", lambda: None)


def test_files_of_a_failed_run_are_kept_beside_the_results(tmp_path: Path) -> None:
    failing = a_run(tmp_path / "folder", tmp_path / "results")
    (tmp_path / "folder" / "service-1.log").write_text("an error")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(tmp_path / "folder" / SOCKET))
        with pytest.raises(UsageError, match="the database is not empty; give an empty one"):
            failing.execute()
    assert not (tmp_path / "results").exists()
    kept = tmp_path / "results-run"
    assert {path.name for path in kept.iterdir()} >= {"service-1.log", "database.sqlite"}
    assert not (kept / SOCKET).exists()
    with pytest.raises(UsageError, match="results-run already exists; name a new folder"):
        failing.execute()


def test_unknown_deliveries_are_read_from_the_tables_of_the_audit(tmp_path: Path) -> None:
    rows = {
        "name": ["replica-1", "replica-2", "replica-3"],
        "detail": ["gap", "", "unrecorded"],
        "p": [1_500_000, 2_000_000, 3_000_000],
        "verdict": ["unknown", "ok", "unknown"],
    }
    (tmp_path / "delivery").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "delivery" / "part-0.parquet")
    found = [(each.name, each.detail, each.at) for each in unknown_of(tmp_path)]
    assert found == [("replica-1", "gap", 1.5), ("replica-3", "unrecorded", 3.0)]
    assert list(unknown_of(tmp_path / "nothing")) == []


def test_links_that_the_changelog_lacks_are_read_from_the_tables_of_the_audit(tmp_path: Path) -> None:
    verdicts = ["unknown", "unpublished", "phantom_publish", "phantom_commit", "chain_broken", "rot"]
    rows = {"topic": ["t"] * 6, "position": [*range(6)], "nonce": [9] * 6, "verdict": verdicts}
    (tmp_path / "store").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "store" / "part-0.parquet")
    assert list(absent_of(tmp_path)) == [
        (("t", 0, 9), "unknown"), (("t", 2, 9), "phantom_publish"), (("t", 3, 9), "phantom_commit"),
    ]  # fmt: skip
    assert list(absent_of(tmp_path / "nothing")) == []
