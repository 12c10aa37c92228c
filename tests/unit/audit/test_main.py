"""The command ``pubsub-audit``: one sentence for each error, and its exit codes."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import pubsub_lib
from pubsub_lib.audit.ingest import input as journals
from pubsub_lib.audit.ingest.source_file import SourceFile, source_file
from pubsub_lib.audit.main import _saved, main
from pubsub_lib.audit.report.report import save_summary
from pubsub_lib.audit.report.summary import TABLES, nothing
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.errors import ConfigError, StoreError
from pubsub_lib.journal import writer
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.writer import Journal
from pubsub_lib.store import Store
from tests.unit.audit.ingest.test_input import damage
from tests.unit.journal.builders import link, settings
from tests.unit.journal.test_seal import unsealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUND = ["--bound", "10"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["follow", "x"], "the following arguments are required: --out"),
        (["walk"], "invalid choice: 'walk'"),
        (["run", "x", "--bound", "soon"], "'soon' is not a number of seconds"),
        (["run", "x", "--window", "nan"], "'nan' is not a number of seconds"),
        (["run", "x", "--window", "1e308"], "'1e308' is not a number of seconds"),
    ],
)
def test_wrong_usage_is_64(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 64
    assert error in capsys.readouterr().err


def test_csv_without_a_folder_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path), "--csv"]) == 64
    assert capsys.readouterr().err == "pubsub-audit: --csv needs --out, in whose folder it writes\n"


def test_missing_command_is_64(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 64
    assert capsys.readouterr().err.endswith("pubsub-audit: the following arguments are required: COMMAND\n")


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pubsub-audit {pubsub_lib.__version__}\n"
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["--version"]) == 32
        full.flush()


def test_invalid_value_is_64_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path), "--window", "0"]) == 64
    assert capsys.readouterr().err == "pubsub-audit: window is 0 microseconds; it must be at least 1\n"
    assert main(["run", str(tmp_path), "--window", "1e15"]) == 64
    assert capsys.readouterr().err.endswith("; it must be at most 3155760000000000, which are 100 years\n")


@pytest.mark.parametrize("command", [["run"], ["follow", "--out", "out"]])
def test_missing_journals_argument_is_64(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.conf"
    path.write_text(f"[pubsub]\nstore_url = sqlite:///{tmp_path}/net.db\n")
    for more in ([], ["--config-file", str(path)]):
        assert main([*command, *more]) == 64
        assert capsys.readouterr().err.startswith("pubsub-audit: no journals are given; name their folder")
    assert main([*command, "--config-file", str(tmp_path / "gone.conf")]) == 64
    assert "cannot be read" in capsys.readouterr().err


def test_config_file_keeps_passwords_out_of_the_process_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "net.conf", tmp_path / "journals"
    folder.mkdir()
    path.write_text(
        f"[pubsub]\njournal_folder = {folder}\nstore_retry_attempts = 1\n"
        "store_url = postgresql://me:tOpSeCrEt@127.0.0.1:1/net\n"
    )
    assert main(["run", "--config-file", str(path)]) == 32
    output = capsys.readouterr()
    assert "127.0.0.1" in output.err  # it used the store of the file
    assert "process list" not in output.err
    assert "tOpSeCrEt" not in output.out + output.err
    opened: list[Any] = []

    def store(database: Any, folders: object) -> Any:
        opened.append(database)
        return nullcontext()

    monkeypatch.setattr("pubsub_lib.audit.main._opened", store)
    assert main(["run", "--config-file", str(path)]) == 32
    assert opened[0].store.retry_attempts == 1
    assert f"no journals in {folder}" in capsys.readouterr().out
    # The command line takes precedence over the file.
    assert main(["run", str(tmp_path / "gone"), "--store", "sqlite:///x", "--config-file", str(path)]) == 32
    assert opened[1] == "sqlite:///x"
    assert f"{tmp_path}/gone" in capsys.readouterr().out


def test_password_on_the_command_line_gives_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journals").mkdir()
    url = "postgresql://me:tOpSeCrEt@127.0.0.1:1/net"
    monkeypatch.setattr("pubsub_lib.audit.main._opened", lambda database, folders: nullcontext())
    main(["run", str(tmp_path / "journals"), "--store", url])
    output = capsys.readouterr().err
    assert output.startswith("pubsub-audit: others on this host can read the password of --store in the process list")
    assert "tOpSeCrEt" not in output


def test_empty_store_url_is_64_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "replica.conf"
    path.write_text(f"[pubsub]\njournal_folder = {tmp_path}\nstore_url = sqlite:///{tmp_path}/x.sqlite\n")
    for journals_of in ([str(tmp_path)], ["--config-file", str(path)]):
        assert main(["run", *journals_of, "--store", ""]) == 64
        out, err = capsys.readouterr()
        assert (out, err) == ("", "pubsub-audit: --store is empty; give the URL of a database, or omit --store\n")


def test_no_input_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path), "--out", str(tmp_path / "out")]) == 32
    assert f"problem: no journals in {tmp_path}" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "out")]) == 32


def test_missing_folder_is_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path / "gone")]) == 32
    assert "name one that exists" in capsys.readouterr().out


@pytest.mark.long
def test_unreadable_files_alone_are_32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nonsense")
    assert main(["run", str(tmp_path), "-f", "json"]) == 32
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["exit_code"] == 32
    assert "is not a complete Parquet file" in found["problems"][0]


def test_internal_error_is_one_sentence_and_32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_given: object) -> object:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(journals, "gather", broken)
    assert main(["run", str(tmp_path)]) == 70
    output = capsys.readouterr().err
    assert output.startswith("pubsub-audit: internal error (ZeroDivisionError('division by zero')); run it with ")
    assert "Traceback" not in output
    assert main(["run", str(tmp_path), "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_given: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(journals, "gather", interrupted)
    assert main(["run", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "pubsub-audit: interrupted; run it again\n"


def test_sigterm_gives_one_sentence_and_removes_scratch_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []

    def terminated(_folders: object, scratch: Path, _store: object) -> object:
        made.append(scratch.parent)
        assert scratch.parent.exists()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise OSError("Spark's JVM got the same signal and cannot be stopped in order")

    monkeypatch.setattr(journals, "gather", terminated)
    assert main(["run", str(tmp_path)]) == 143
    assert capsys.readouterr().err == "pubsub-audit: interrupted; run it again\n"
    assert not made[0].exists()


def test_closed_pipe_ends_the_command_without_a_message(tmp_path: Path) -> None:
    save_summary(nothing(["no journals"]), tmp_path / "out")
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "pubsub_lib.audit.main", "report", str(tmp_path / "out")]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, b"")


def test_result_is_returned_when_it_cannot_be_saved() -> None:
    def full() -> None:
        raise ConfigError("out cannot be written (No space left on device); check its permissions and its disk")

    result = _saved(full, nothing(["a file"]))
    assert result.exit_code == 32
    assert result.problems[0] == "a file"
    assert result.problems[1].startswith("out cannot be written")


def test_result_is_returned_when_spark_cannot_write_it() -> None:
    def full() -> None:
        raise PySparkException(
            "Job aborted.\n\tat org.apache.spark\nCaused by: java.lang.Error: task 1\n\tat scala\n"
            "Caused by: java.io.IOException: No space left on device\n\tat java.io\n"
        )

    found = msgspec.structs.replace(nothing([]), exit_code=1)
    result = _saved(full, found)
    assert result.exit_code == 1 + 32
    assert result.problems == [
        "the results cannot be written (java.io.IOException: No space left on device); check the disk of --out"
    ]


@pytest.mark.long
def test_file_names_may_hold_any_bytes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.journal")).write_bytes(b"nonsense")
    assert main(["run", str(tmp_path), "--out", str(tmp_path / "out")]) == 32
    assert main(["report", str(tmp_path / "out")]) == 32


def test_missing_store_is_reported_and_not_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nonsense")
    monkeypatch.setattr("pubsub_lib.audit.main.session", pytest.fail)  # before Spark is started
    assert main(["run", str(tmp_path), "--store", f"sqlite:///{tmp_path / 'typo.db'}"]) == 32
    assert "typo.db" in capsys.readouterr().err
    assert not (tmp_path / "typo.db").exists()


@pytest.mark.parametrize(("small", "early"), [(64 << 20, True), (30, False)])
def test_spark_starts_while_the_store_is_read_unless_it_is_large(
    small: int, early: bool, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(sqlite_url) as store, store.transaction() as tx:
        for number in range(30):
            tx.set("item", f"k{number}", number)
    started = threading.Event()

    def start(*_: Any) -> tuple[None, bool]:
        started.set()
        return None, False

    def read(*_: Any) -> NoReturn:
        assert started.wait(60 if early else 0) == early
        raise StoreError("the store was read")

    monkeypatch.setattr("pubsub_lib.audit.spark.early._running", lambda: False)
    monkeypatch.setattr("pubsub_lib.audit.main.SMALL", small)
    monkeypatch.setattr("pubsub_lib.audit.main._session", start)
    monkeypatch.setattr("pubsub_lib.audit.ingest.store_journal.StoreSide.write", read)
    assert main(["run", str(tmp_path), "--store", sqlite_url]) == 32


def test_report_of_a_folder_without_a_summary_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 64
    assert "name the --out folder of an audit" in capsys.readouterr().err


class Clock:
    """Replaces the module ``time``: every reading of the wall advances it by a tenth of a second."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000_000_000

    def time_ns(self) -> int:
        self.now += 100_000_000
        return self.now

    def monotonic_ns(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e9


def lossy_journals(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals in which the second of three messages is lost; all runs end in order much later."""
    monkeypatch.setattr(writer, "time", Clock())
    service, replica = Journal(settings(folder), "service", "s1"), Journal(settings(folder), "replica", "r1")
    replica.note("interest", topic="t1")
    replica.note("sync_end", topic="t1", sequence=1, outcome="full")
    for sequence in (1, 2, 3):
        sent = Envelope("s1", "ab" * 16, "t1", sequence, [Message(link(6 + sequence))])
        service.messages(("sent",), sent)
        if sequence != 2:
            replica.messages(("applied",), sent)
    for _ in range(1000):
        replica.note("mark")
    service.close()
    replica.close()


@pytest.mark.long
def test_a_run_from_journals_to_report(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sqlite_url: str,
    spark: "SparkSession",
) -> None:
    """The store is empty, so it is not the one of these journals."""
    Store(sqlite_url).close()
    folder, out = tmp_path / "journals", tmp_path / "out"
    lossy_journals(folder, monkeypatch)
    (folder / "x.journal").write_bytes(b"nonsense")
    assert main(["run", str(folder), "--store", sqlite_url, "--out", str(out), "--csv", "-f", "json", *BOUND]) == 1 + 32
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["balance"][""] == {
        "expected": 3, "delivered": 2, "repaired": 0, "lost": 1, "pending": 0, "excused": 0, "unknown": 0
    }  # fmt: skip
    (lost,) = [each for each in found["first"] if each["verdict"] == "lost"]
    assert (lost["name"], lost["sequence"], lost["detail"], lost["blame"]) == ("r1", 2, "middle", "wire")
    garbage, store = found["problems"]
    assert garbage == "x.journal is not a journal; remove it from the journals' folder"
    assert store.endswith(
        "store.sqlite') has neither objects nor a changelog, but the journals have messages; "
        "give --store their database"
    )
    assert main(["report", str(out), "--page", str(tmp_path / "again.html")]) == 33
    assert "delivery  lost" in capsys.readouterr().out
    files = {*TABLES, *(f"{name}.csv" for name in TABLES), "summary.json", "page.html", "audit.prom"}
    assert {each.name for each in out.iterdir()} == files
    for name in TABLES:
        header, *rows = csv.reader((out / f"{name}.csv").read_text().splitlines())
        assert len(rows) == pq.read_table(out / name).num_rows, name
        assert "domain" in header
    (as_text,) = csv.DictReader((out / "anomaly.csv").read_text().splitlines())
    assert (as_text["verdict"], as_text["name"], as_text["sequence"]) == ("lost", "r1", "2")
    assert as_text["p"].startswith("2001-09-09 01:46:4")
    assert 'href="out/anomaly/verdict=lost/"' in (tmp_path / "again.html").read_text()
    (row,) = pq.read_table(out / "anomaly", filters=[("verdict", "=", "lost")]).to_pylist()
    assert (row["of"], row["name"], row["sequence"], row["blame"]) == ("delivery", "r1", 2, "wire")
    assert 'verdict="lost"} 1.0' in (out / "audit.prom").read_text()


@pytest.mark.long
def test_replica_that_closes_while_its_journal_is_read_is_compared_with_the_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sqlite_url: str,
    spark: "SparkSession",
) -> None:
    """It lists what was committed while the audit ran; the store must not be read before that."""
    folder = tmp_path / "journals"
    service, replica = Journal(settings(folder), "service", "s1"), Journal(settings(folder), "replica", "r1")
    replica.note("interest", topic="t1")
    replica.note("sync_end", topic="t1", sequence=1, outcome="full")
    with Store(sqlite_url) as store:

        def deliver(sequence: int) -> None:
            with store.transaction(origin="s1") as tx:
                tx.set("item", f"k{sequence}", sequence, topic="t1")
            assert tx.commit is not None
            sent = Envelope("s1", "ab" * 16, "t1", sequence, [Message(each) for each in tx.commit.links])
            service.messages(("sent",), sent)
            replica.messages(("applied",), sent)

        def read(path: Path, scratch: Path) -> SourceFile | None:
            if not closed:
                closed.append(True)
                deliver(2)
                held = store.inspect.contents()
                replica.listing(1, "t1", held.head, list(held.topics["t1"].records))
                replica.close()
                service.close()
            return source_file(path, scratch)

        closed: list[bool] = []
        deliver(1)
        monkeypatch.setattr(journals, "source_file", read)
        code = main(["run", str(folder), "--store", sqlite_url, "-f", "json", *BOUND])
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (code, found["problems"], found["balance"][""]["delivered"]) == (0, [], 2)


@pytest.mark.long
@pytest.mark.parametrize("sealed", [True, False])
def test_damaged_file_is_named_and_the_others_are_audited(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: "SparkSession",
    sealed: bool,
) -> None:
    """A file without a checksum, of an earlier version, is only found when Spark fails."""
    folder = tmp_path / "journals"
    lossy_journals(folder, monkeypatch)
    compact(folder)
    other = Journal(settings(folder), "replica", "r2")
    other.note("interest", topic="t2")
    other.close()
    compact(folder)
    (path,) = [each for each in folder.iterdir() if other.run in each.name]
    if not sealed:
        unsealed(path, path)
    damage(path)
    assert main(["run", str(folder), "-f", "json", *BOUND]) & 33 == 33
    found = msgspec.json.decode(capsys.readouterr().out)
    assert any(each.startswith(f"{path} is damaged (") for each in found["problems"])
    assert found["balance"][""]["lost"] == 1


@pytest.mark.long
def test_torn_file_makes_the_evidence_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    """A later run follows, so the rest of the torn one is not waited for."""
    folder = tmp_path / "journals"
    lossy_journals(folder, monkeypatch)
    (path,) = [each for each in folder.iterdir() if next(read(each)).side == "replica"]
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    later = Journal(settings(folder), "replica", "r1")
    later.close()
    compact(folder)
    assert main(["run", str(folder), "-f", "json", *BOUND]) & 33 == 33
    (problem,) = msgspec.json.decode(capsys.readouterr().out)["problems"]
    assert problem.startswith(f"{path.with_suffix('.parquet')} was damaged after it was written: ")


@pytest.mark.long
def test_participant_without_a_journal_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder, path = tmp_path / "journals", tmp_path / "expected"
    lossy_journals(folder, monkeypatch)
    path.write_text("service s1\nreplica r1\nreplica r2\nwriter r1\n")
    assert main(["run", str(folder), "--expect", str(path), "-f", "json", *BOUND]) == 33
    assert msgspec.json.decode(capsys.readouterr().out)["problems"] == [
        f"the {who} is expected (--expect) and has no journal; add its journals, or correct the file"
        for who in ("replica r2", "writer r1")
    ]


def test_expected_participants_of_several_domains_are_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "expected").write_text("replica r1\n")
    assert main(["run", f"a={tmp_path}", f"b={tmp_path}", "--expect", str(tmp_path / "expected")]) == 64
    assert "but the journals have 2; audit each alone" in capsys.readouterr().err
    assert main(["run", str(tmp_path), "--expect", str(tmp_path / "gone")]) == 64


@pytest.mark.long
def test_file_that_retention_removes_while_spark_reads_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder = tmp_path / "journals"
    old = Journal(settings(folder), "replica", "r0")
    old.close()
    lossy_journals(folder, monkeypatch)
    compact(folder)
    removed = [each for each in folder.iterdir() if old.run in each.name]
    load = journals.load

    def load_and_remove(*given: Any) -> Any:
        rows = load(*given)
        if removed:
            removed.pop().unlink()
        return rows

    monkeypatch.setattr(journals, "load", load_and_remove)
    assert main(["run", str(folder), "-f", "json", *BOUND]) == 1
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["problems"] == []
    assert found["balance"][""]["lost"] == 1


def test_journal_deleted_while_spark_reads_is_32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder = tmp_path / "journals"
    lossy_journals(folder, monkeypatch)
    compact(folder)
    load = journals.load

    def vanish(*given: Any) -> Any:
        rows = load(*given)
        shutil.rmtree(folder)
        return rows

    monkeypatch.setattr(journals, "load", vanish)
    assert main(["run", str(folder)]) == 32
    output = capsys.readouterr()
    assert "was deleted during the audit; check which process deletes journal files, and run it again" in output.out
    assert "Traceback" not in output.err
