"""Parts of the demo: shares, expected state, dumps, comparison, report and exit codes."""

import gzip
import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _children import ChildError
from _routes import command, comparison, data, dump
from _routes.audit import Audit, _execute, audit, claimed, prepare
from _routes.comparison import Differences
from _routes.plan import PROGRESS, SESSION, Plan
from _routes.progress import Progress
from _routes.replica import Versions, Watch, percentile, sabotage, within
from _routes.report import KillRow, ReplicaRow, Report, Sabotaged, WriterRow, as_json, show
from _routes.run import Run
from _routes.writer import committed_after
from rich.console import Console

from pubsub_lib import Event, Replica, Settings, Store
from pubsub_lib.audit.report.report import save_summary
from pubsub_lib.audit.report.summary import Balance, Count, nothing
from pubsub_lib.audit.spark.java import Java
from pubsub_lib.command.exit_codes import AUDIT_USAGE
from pubsub_lib.core.model import Record
from pubsub_lib.errors import StoreFull, UsageError
from pubsub_lib.store.verbs import Stored

SMALL = Path(__file__).resolve().parent.parent.parent.parent / "tools" / "data" / "updates-small.jsonl.gz"


def route(key: str, action: str = "set", topic: str = "t", number: int = 0) -> data.Route:
    value = None if action == "delete" else {"n": number}
    return msgspec.convert(
        {"time": 0, "table": "route", "key": key, "topic": topic, "action": action, "value": value},
        data.Route,
    )


def test_shares_hold_every_line_once_and_a_key_in_one_share() -> None:
    routes = list(data.read(SMALL))
    shares = [data.share(routes, index, 4) for index in range(4)]
    assert sum(map(len, shares)) == len(routes) == 7033
    keys = [{each.key for each in share} for share in shares]
    assert sum(map(len, keys)) == len(set.union(*keys))
    assert min(map(len, shares)) > len(routes) / 8, "one writer would do nearly nothing"


def test_follow_counts_what_changes_something() -> None:
    state: data.State = {}
    assert data.follow(state, [route("a"), route("a"), route("b", "delete"), route("a", number=1)]) == {"t": 2}
    assert data.follow(state, [route("a", topic="u", number=1)]) == {"t": 1, "u": 1}
    assert data.follow(state, [route("a", "delete")]) == {"u": 1}
    assert state == {}


def test_invalid_file_of_routes_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"routes\.gz is missing"):
        list(data.read(tmp_path / "routes.gz"))
    (tmp_path / "plain").write_text("no gzip")
    with pytest.raises(UsageError, match="cannot be read as routes"):
        list(data.read(tmp_path / "plain"))
    with gzip.open(tmp_path / "other.gz", "wb") as file:
        file.write(b'{"a":1}\n')
    with pytest.raises(UsageError, match="cannot be read as routes"):
        list(data.read(tmp_path / "other.gz"))


@pytest.mark.parametrize("number", [0, 1, dump.PAGE, dump.PAGE + 1])
def test_written_dump_can_be_read(number: int, tmp_path: Path) -> None:
    records = [Record("route", f"k{each}", each + 1, b"{}") for each in range(number)]
    dump.write(tmp_path / "dump", records)
    assert list(dump.read(tmp_path / "dump")) == records


@pytest.mark.parametrize(
    ("numbers", "percent", "wanted"),
    [([], 50, None), ([7.0], 99, 7.0), ([1.0, 2.0], 50, 1.0), ([float(n) for n in range(1, 101)], 99, 99.0)],
)
def test_percentile(numbers: list[float], percent: int, wanted: float | None) -> None:
    assert percentile(numbers, percent) == wanted


OBJECTS = {
    ("route", "a"): Stored("route", "a", "t", 1, b'{"n":1}'),
    ("route", "b"): Stored("route", "b", "u", 2, b'{"n":2}'),
    (PROGRESS, "w"): Stored(PROGRESS, "w", PROGRESS, 3, b'{"done":5}'),
}
A, B = Record("route", "a", 1, b'{"n":1}'), Record("route", "b", 2, b'{"n":2}')
W = Record(PROGRESS, "w", 3, b'{"done":5}')


@pytest.mark.parametrize(
    ("records", "topics", "number"),
    [
        ([A, B, W], (), 0),
        ([A], ("t",), 0),
        ([A, B], ("t",), 1),
        ([A, B], (), 1),
        ([Record("route", "a", 2, b'{"n":1}')], ("t",), 1),
        ([Record("route", "a", 1, b'{"n":3}')], ("t",), 1),
        ([A, A], ("t",), 1),
        ([], ("t",), 1),
    ],
)
def test_a_replica_is_compared_object_by_object(records: list[Record], topics: tuple[str, ...], number: int) -> None:
    found = comparison.of_replica(OBJECTS, topics, records)
    assert found.number == number
    assert bool(found.example) == bool(number)


def test_hot_key_must_hold_the_last_value_of_one_writer() -> None:
    value = b'{"updates":7,"writer":"worker-2"}'
    hot = {(SESSION, "t"): Stored(SESSION, "t", "t", 9, value)}
    mine, others = {"updates": 7, "writer": "worker-2"}, {"updates": 7, "writer": "worker-1"}
    assert comparison.of_files(hot, {}, {}, {"t": [others, mine]}).number == 0
    assert comparison.of_files(hot, {}, {}, {"t": [others]}).number == 1
    assert comparison.of_files(hot, {}, {}, {"t": [mine], "u": [mine]}).number == 1
    assert comparison.of_files({(SESSION, "t"): Stored(SESSION, "t", "u", 9, value)}, {}, {}, {"t": [mine]}).number == 1


def test_the_database_is_compared_with_the_files() -> None:
    expected = {("route", "a"): ("t", b'{"n":1}'), ("route", "b"): ("u", b'{"n":2}')}
    assert comparison.of_files(OBJECTS, expected, {"w": 5}, {}).number == 0
    assert comparison.of_files(OBJECTS, expected, {"w": 6}, {}).number == 1
    assert comparison.of_files(OBJECTS, expected | {("route", "a"): ("u", b'{"n":1}')}, {"w": 5}, {}).number == 1
    assert comparison.of_files(OBJECTS, expected | {("route", "c"): ("u", b"{}")}, {"w": 5}, {}).number == 1
    del expected["route", "a"]
    assert comparison.of_files(OBJECTS, expected, {"w": 5}, {}).number == 1


def row(**changed: Any) -> ReplicaRow:
    given: dict[str, Any] = {
        "name": "replica-1",
        "polling": False,
        "driver": "ZeroMQ",
        "topics": ("as3333",),
        "below_relays": False,
        "listened_to": "publisher-service",
        "publishers": (),
        "kills": 1,
        "objects": 56_839,
        "changes": 5788,
        "links": 700,
        "calls": 62_627,
        "twice": 0,
        "conflated": 0,
        "duplicates": 3,
        "holes": 2,
        "deltas": 1,
        "fulls": 1,
        "resyncs": 0,
        "faults": 0,
        "notifications": None,
        "latency_p50": 0.0301,
        "latency_p99": None,
        "max_latency": 1.5,
        "sync_seconds": 1.0,
        "memory": 70_000_000,
        "from_database": Differences(0, ""),
    }
    return ReplicaRow(**{**given, **changed})


def report(replica: ReplicaRow | None = None, **changed: Any) -> Report:
    given: dict[str, Any] = {
        "database": "sqlite",
        "service_starts": 2,
        "routes": 10,
        "load_seconds": 1.0,
        "changes": 20,
        "transactions": 2,
        "replay_seconds": 1.0,
        "objects": 12,
        "position": 30,
        "from_files": Differences(0, ""),
        "writers": [WriterRow("worker-1", 20, 10, 11)],
        "kills": [KillRow("publisher-service", 10, 20, 4)],
        "planned_kills": 1,
        "replicas": [row() if replica is None else replica],
        "seconds": 3.0,
    }
    return Report(**{**given, **changed})


def audited(exit_code: int, **changed: Any) -> Audit:
    given: dict[str, Any] = {
        "exit_code": exit_code,
        "sentence": "Of 9 expected deliveries: a sentence.",
        "balance": {"": Balance(9, 7, 1, 0, 0, 1, 0)},
        "counts": [Count("", "delivery", "repaired", "", "wire", 1), Count("", "state", "wrong_value", "", "", 1)],
        "faults": [{"of": "state", "verdict": "wrong_value", "name": "replica-1", "key": "[a]"}],
        "problems": [],
        "stopped": {"replica-1": 45},
        "folder": "/tmp/found",
        "page": "/tmp/found/page.html",
        "seconds": 8.0,
    }
    return Audit(**{**given, **changed})


ONE_MISSING = row(from_database=Differences(2, "'[a]', which the replica does not have"))


def test_the_table_fits_into_80_columns() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    large = row(name="everything", topics=(), objects=452_018, duplicates=12_345, latency_p99=15.0)
    show(report(replicas=[row(), large]), console)
    table = console.export_text()
    lines = [line.strip() for line in table.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("replica-1"))
    shown = "replica-1 as3333 56,839 5,788 3 0 2 1/1 30 – equal"
    assert lines[first].split() == shown.split()
    assert lines[first + 1] == "ZeroMQ *"
    assert "…" not in table
    assert "publisher-service was killed after 10 updates, at position 20: 4 committed changes were unsent" in table
    assert "after it reported 10 of its 20 updates; the next process continued at 11" in table


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        (report(ONE_MISSING), "replica-1 differs in 2 objects, for example '[a]', which the replica does not have"),
        (report(from_files=Differences(1, "'[a]'")), "the database differs from the files in 1 objects, for example"),
        (report(row(faults=1)), "replica-1 counted 1 faults that must never happen"),
        (report(row(twice=3)), "the handler of replica-1 was called twice for 3 versions"),
        (report(row(resyncs=2)), "replica-1 needed 2 full syncs after its first"),
        (report(row(notifications=0)), "replica-1 received no notification, so it only polled"),
        (report(kills=[KillRow("worker-2", 10, 20, 0)]), "nothing was unsent when worker-2 was killed"),
        (
            report(kills=[KillRow("worker-2", 10, 20, 0)], unsent_means="unannounced"),
            "nothing was unannounced when worker-2 was killed",
        ),
        (report(kills=[]), "0 processes were killed instead of 1"),
        (report(audit=audited(8)), "the audit failed: Of 9 expected deliveries: a sentence."),
        (report(row(kills=0), audit=audited(0)), "45 changes never came to replica-1, which was not killed"),
    ],
    ids=[
        "replica",
        "files",
        "faults",
        "twice",
        "full sync",
        "no notification",
        "nothing unsent",
        "nothing unannounced",
        "no kill",
        "audit",
        "excused",
    ],
)
def test_report_names_each_failed_check(ended: Report, sentence: str) -> None:
    (found,) = ended.broken()
    assert found.startswith(sentence)


def test_notifications_and_unannounced_changes_are_shown() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    show(report(row(driver="NOTIFY", notifications=1234), unsent_means="unannounced"), console)
    shown = console.export_text()
    assert "position 20: 4 committed changes were unannounced." in shown
    assert "replica-1: 1,234 notifications, first sync 1.0 s after its start" in shown


def test_unsent_changes_are_not_checked_without_a_service() -> None:
    assert report(kills=[KillRow("writer-2", 10, 20, None)]).broken() == []


def test_audit_results_fit_the_screen_and_name_fault_and_page() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    done = Sabotaged("replica-1", "route", "[a]")
    show(report(ONE_MISSING, sabotaged=done, audit=audited(4)), console)
    shown = console.export_text()
    for sentence in (
        "'[a]' of the table route was corrupted in the memory of replica-1.",
        "Balance: 9 expected = 7 delivered + 1 repaired + 0 lost + 0 pending + 1 excused +",
        "Fault: of=state verdict=wrong_value name=replica-1 key=[a]",
        "a sentence. The audit took 8.0 s.",
        "Tables and summary are in /tmp/found; open /tmp/found/page.html.",
    ):
        assert sentence in shown
    assert ["delivery", "repaired", "wire", "1"] in [line.split() for line in shown.splitlines()]


def test_results_need_a_new_folder_which_a_failed_run_removes(tmp_path: Path) -> None:
    results = tmp_path / "new" / "results"
    with pytest.raises(StoreFull), claimed(results):
        with (
            pytest.raises(UsageError, match=f"{results} already exists; name a new folder"),
            claimed(results),
        ):
            pytest.fail("two runs have one folder")
        assert results.is_dir(), "the folder belongs to the first run"
        raise StoreFull("no room")
    assert not results.exists()


def audited_by(monkeypatch: pytest.MonkeyPatch, folder: Path, status: int) -> Audit:
    """The result of an audit process that writes an empty summary (its exit code is 32) and ends with ``status``."""

    def execute(arguments: list[str], variables: dict[str, str], output: Path) -> tuple[int, str]:
        assert (arguments[-2:], variables["TMPDIR"]) == (["--bound", "60"], str(folder))
        save_summary(nothing(["no journals"]), Path(arguments[arguments.index("--out") + 1]))
        output.write_text("A verdict.\nMore.\n")
        return status, "its last words"

    monkeypatch.setattr("_routes.audit._execute", execute)
    with claimed(folder / "results"):
        return audit("sqlite://", folder / "results", 60.0, folder, Progress(Console(file=io.StringIO())))


def test_audit_whose_status_differs_from_its_summary_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ChildError, match="ended with status 0, its summary has 32: its last words"):
        audited_by(monkeypatch, tmp_path, 0)
    assert not (tmp_path / "results").exists()


def test_audit_results_are_in_the_named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audited_by(monkeypatch, tmp_path, 32)
    assert (found.exit_code, found.sentence, found.problems) == (32, "A verdict.", ["no journals"])
    assert found.page == str(tmp_path / "results" / "page.html")
    assert Path(found.page).is_file()


def test_a_failed_audit_process_has_a_status_and_last_words(tmp_path: Path) -> None:
    status, complaint = _execute(["run", str(tmp_path / "none"), "--out"], {"X": "1"}, tmp_path / "out")
    assert status == AUDIT_USAGE
    assert "--out" in complaint
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["pubsub-audit: Spark broke the audit off", "26/11/27 02:01:47 ERROR TaskSetManager: aborting job", " "],
         "pubsub-audit: Spark broke the audit off"),
        (["pubsub-audit: first", "pubsub-audit: last"], "pubsub-audit: last"),
        (["Exception in thread", "a word"], "a word"),
        ([], ""),
    ],
)  # fmt: skip
def test_last_words_of_an_audit_are_its_own_sentence(
    lines: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"import sys; sys.stderr.write({''.join(f'{line}{chr(10)}' for line in lines)!r}); sys.exit(32)"
    monkeypatch.setattr("_routes.audit.attached", lambda *_: [sys.executable, "-c", code])
    assert _execute([], {}, tmp_path / "out") == (32, complaint)


def test_archive_for_the_audit_is_made_once_and_the_run_continues_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, executed = io.StringIO(), []
    progress = Progress(Console(file=output, width=200))

    def execute(arguments: list[str], variables: dict[str, str], file: Path) -> tuple[int, str]:
        executed.append((arguments, variables["TMPDIR"], file.parent))
        return len(executed) - 1, "pubsub-audit: the disk is full"

    monkeypatch.setattr("_routes.audit.found_java", lambda: Java(None, "17"))
    monkeypatch.setattr("_routes.audit._execute", execute)
    monkeypatch.setattr("_routes.audit.class_archive.find", lambda java: None)
    prepare(tmp_path, progress)
    assert executed == [(["prepare"], str(tmp_path), tmp_path)]
    assert "200 MB of Spark's classes, some 30 s" in output.getvalue()
    assert "full" not in output.getvalue()
    prepare(tmp_path, progress)
    assert "pubsub-audit: the disk is full; the audit takes longer\n" in output.getvalue()
    monkeypatch.setattr("_routes.audit.class_archive.find", lambda java: tmp_path / java)
    prepare(tmp_path, progress)
    assert len(executed) == 2


@pytest.mark.usefixtures("signal_handlers")
def test_interrupt_during_the_start_of_the_audit_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def interrupted(_command: list[str], **given: Any) -> "subprocess.Popen[bytes]":
        started.append(popen([sys.executable, "-c", "import time; time.sleep(600)"], **given))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr("_routes.audit.java_home", lambda: None)
    monkeypatch.setattr("_children.subprocess.Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        audit("sqlite://", tmp_path / "results", 60.0, tmp_path, Progress(Console(file=io.StringIO())))
    assert started[0].returncode == -signal.SIGKILL


def test_the_sabotaged_object_keeps_its_version_and_the_replica_its_digest(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("another", "z", {"n": 1}, topic="without a route")
            for key in ("b", "a", "c"):
                tx.set("route", key, {"n": 1}, topic="t")
        settings = Settings(store_url=sqlite_url, driver="db_polling_pubsub_driver")
        with Replica(settings, ["t", "without a route"]) as replica:
            replica.wait_synced(20.0)
            before = {(each.table, each.key): each for each in replica.records()}
            identity = sabotage(replica)
            after = {(each.table, each.key): each for each in replica.records()}
            assert replica.status().faults.mismatches == 0
    assert identity == ("another", "z")
    assert [each for each in before if before[each] != after[each]] == [identity]
    assert after[identity].version == before[identity].version


def test_json_contains_the_verdicts() -> None:
    found = msgspec.json.decode(as_json(report(ONE_MISSING)))
    shown = found["replicas"][0]
    assert (found["equal"], shown["verdict"], shown["holes"], shown["transport"]) == (False, "differs", 2, "ZeroMQ")
    assert found["broken"] == list(report(ONE_MISSING).broken())


def test_versions_detect_repetition() -> None:
    versions = Versions()
    assert [versions.again(each) for each in (1, 5_000_000, 2, 1, 5_000_000, 5_000_001)] == [
        False, False, False, True, True, False,
    ]  # fmt: skip


def test_handler_counts_repeated_versions() -> None:
    watch = Watch(lambda _message: None)
    synced = Event("route", "a", "t", "create", 7, None, None, b"{}", 7)
    followed = Event("route", "a", "t", "set", 8, 7, b"{}", b"1", 8, written_at=1.0)
    found_gone = Event("route", "a", "t", "delete", None, 8, b"1", None, 9)
    for event in (synced, followed, found_gone, found_gone):
        watch(event)
    assert (watch.calls, watch.twice, len(watch.latencies)) == (4, 0, 1)
    watch(followed)
    watch(synced)
    assert (watch.calls, watch.twice) == (6, 2)


def test_within_finds_times_inside_the_spans() -> None:
    assert [within(at, [(1.0, 2.0), (5.0, 6.0)]) for at in (0.9, 1.0, 2.0, 3.0, 5.5)] == [
        False, True, True, False, True,
    ]  # fmt: skip


def test_the_last_transaction_of_a_killed_worker_is_counted(sqlite_url: str) -> None:
    """Changes that the worker committed and did not report are counted, without the changes of other workers."""
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set(PROGRESS, "worker-2", {"done": 1}, topic=PROGRESS)
        assert tx.commit is not None
        reported = tx.commit.point
        assert committed_after(store, "worker-2", reported) == 0
        for name, keys in (("worker-1", 5), ("worker-2", 3)):
            with store.transaction() as tx:
                for key in range(keys):
                    tx.set("route", f"{name}-{key}", key, topic=f"t{key}")
                tx.set(PROGRESS, name, {"done": 9}, topic=PROGRESS)
        assert committed_after(store, "worker-2", reported) == 4


@pytest.mark.usefixtures("signal_handlers")
@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (report(audit=audited(0)), 0),
        (report(ONE_MISSING), 1),
        (report(row(twice=1, resyncs=1), audit=audited(0)), 1),
        (report(audit=audited(2)), 1),
        (report(ONE_MISSING, audit=audited(4)), 4),
        (report(audit=audited(41)), 41),
    ],
    ids=["passed", "differs", "equal, but a check failed", "corrupt", "sabotaged", "bits of the audit"],
)
def test_exit_codes(
    ended: Report, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Run, "execute", lambda _self: ended)
    assert command.execute("tools/demo", "json", _one_run) == code
    assert capsys.readouterr().err.count("\n") == bool(code), "one sentence when a check failed"


@pytest.mark.usefixtures("signal_handlers")
@pytest.mark.parametrize("error", [StoreFull("no room\nleft"), OSError(28, "No space left on device")])
def test_an_error_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_self: Run) -> Report:
        raise error

    monkeypatch.setattr(Run, "execute", fail)
    assert command.execute("tools/demo", "table", _one_run) == 3
    output = capsys.readouterr().err
    assert output.startswith("tools/demo: ")
    assert output.count("\n") == 1


def _one_run(run: Callable[[Plan], int], folder: Path) -> int:
    return run(Plan(database="SQLite", url=f"sqlite:///{folder}/x", routes=folder, changes=folder, replicas=()))
