"""The demo and the full real set as commands: their results and exit codes; no file and no process is left."""

import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from demo_app import parse
from selenium.webdriver.common.by import By

from pubsub_lib.errors import ConfigError
from tests.browser import chromium, console
from tests.conftest import IN_CI

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tools" / "data"
CUT = ("--routes", "5000", "--changes", "900", "--seconds", "6")
DEADLINE = 1200.0
"""Seconds; far more than a demo takes, also on a machine that is busy with other programs."""


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with an empty temporary folder, by which the started processes can be found."""
    path = [str(ROOT), str(ROOT / "drivers"), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "80"}


def call(
    program: str, *arguments: str, folder: Path, limit: Callable[[], None] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "tools" / program), *arguments]
    return subprocess.run(
        command,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
        preexec_fn=limit,
    )


def processes_of(folder: Path) -> list[int]:
    """Return the processes that were started with this temporary folder, or with a folder in it."""
    mark = f"TMPDIR={folder}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if any((each + b"/").startswith(mark) for each in (entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
            except OSError:
                pass  # the process has ended
    return found


def assert_all_end(pids: Sequence[int]) -> None:
    """Check that each of these processes ends by itself."""
    with ExitStack() as stack:
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, descriptor)
            ready, _, _ = select.select([descriptor], [], [], DEADLINE)
            assert ready, f"process {pid} still runs"


def assert_one_sentence(output: str, beginning: str) -> None:
    assert output.startswith(beginning), output
    assert output.count("\n") == 1, output


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    """One run for all these checks, because a run for each would take minutes."""
    folder, results = tmp_path / "tmp", tmp_path / "results"
    folder.mkdir()
    done = call("demo_app.py", "-f", "json", *CUT, "--out", str(results), folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    report: dict[str, Any] = msgspec.json.decode(done.stdout)
    replicas_equal_the_database_and_the_files(report)
    replicas_hold_only_their_topics(report)
    each_kill_left_unsent_commits(report)
    no_replica_needed_another_full_sync_or_a_duplicate_callback(report)
    killed_worker_resumes_where_the_database_stands(report)
    audit_finds_no_fault_despite_the_kills(report)
    audit_shows_the_tree_of_relays(report)
    page_of_the_audit_opens_without_errors(report, tmp_path)


def replicas_equal_the_database_and_the_files(report: dict[str, Any]) -> None:
    assert [row["verdict"] for row in report["replicas"]] == ["equal"] * 4
    assert report["equal"] is True
    assert report["broken"] == []
    assert report["from_files"]["number"] == 0
    assert (report["routes"], report["changes"], len(report["writers"])) == (5000, 900, 4)
    assert [row["faults"] for row in report["replicas"]] == [0, 0, 0, 0]


def replicas_hold_only_their_topics(report: dict[str, Any]) -> None:
    one, two, everything, four = report["replicas"]
    assert (one["topics"], two["topics"], everything["topics"]) == (["as3333"], ["as5409", "as8259"], [])
    assert four["topics"] == ["as5409"]
    assert [row["transport"] for row in report["replicas"]] == ["ZeroMQ", "ZeroMQ", "polling", "ZeroMQ"]
    assert everything["objects"] == report["objects"]
    assert 0 < one["objects"] < two["objects"] < everything["objects"]
    assert 0 < four["objects"] < two["objects"]
    assert one["changes"] > 0
    assert one["latency_p50"] <= one["latency_p99"] <= one["max_latency"]


def each_kill_left_unsent_commits(report: dict[str, Any]) -> None:
    assert sorted(kill["victim"] for kill in report["kills"]) == [
        "publisher-service", "relay-1", "replica-2", "worker-2"
    ]  # fmt: skip
    for kill in report["kills"]:
        assert kill["unsent"] > 0, kill
        assert 0 < kill["lines"] < report["changes"], "not in the middle of the replay"
        assert kill["position"] < report["position"]
    assert report["service_starts"] == 2
    assert report["relays"] == [
        {"name": "relay-1", "starts": 2, "kills": 1},
        {"name": "relay-2", "starts": 1, "kills": 0},
    ]


def no_replica_needed_another_full_sync_or_a_duplicate_callback(report: dict[str, Any]) -> None:
    assert [row["kills"] for row in report["replicas"]] == [0, 1, 0, 0]
    assert [row["resyncs"] for row in report["replicas"]] == [0, 0, 0, 0]
    # One for each topic and for the default topic, or one for everything. Only the killed replica started again.
    assert [row["fulls"] for row in report["replicas"]] == [2, 3, 1, 2]
    for row in report["replicas"]:
        assert row["twice"] == 0, row
        assert row["calls"] >= row["objects"], "the handler was called at least once for every object"


def killed_worker_resumes_where_the_database_stands(report: dict[str, Any]) -> None:
    killed = [row for row in report["writers"] if row["killed_at"] is not None]
    assert [row["name"] for row in killed] == ["worker-2"]
    assert 0 < killed[0]["killed_at"] < killed[0]["changes"]
    # It was killed after COMMIT, before it could report that transaction.
    assert killed[0]["resumed_at"] == killed[0]["killed_at"] + 10


def audit_finds_no_fault_despite_the_kills(report: dict[str, Any]) -> None:
    audit = report["audit"]
    assert audit["exit_code"] == 0, audit
    assert (audit["faults"], audit["problems"]) == ([], [])
    assert set(audit["stopped"]) <= {"replica-2", "relay-1"}, "only a killed one may have missed a change"
    (balance,) = audit["balance"].values()
    assert balance["delivered"] > 0
    assert balance["unknown"] == balance["pending"] == 0
    assert balance["expected"] == sum(number for name, number in balance.items() if name != "expected")
    # Each kill left unsent links: replicas read the published ones from the store, or no process published them.
    verdicts = {each["verdict"] for each in audit["counts"]}
    assert "ok" in verdicts
    assert verdicts & {"repaired", "unpublished"}
    folder = Path(audit["folder"])
    assert (folder / "summary.json").is_file()
    assert list((folder / "delivery").glob("*.parquet"))
    assert audit["page"] == str(folder / "page.html")


def audit_shows_the_tree_of_relays(report: dict[str, Any]) -> None:
    hops = msgspec.json.decode((Path(report["audit"]["folder"]) / "summary.json").read_bytes())["tree"]
    above = {(hop["service"], hop["name"]) for hop in hops if hop["name_role"] == "relay" and hop["service"]}
    assert above == {("demo", "relay-1"), ("demo", "relay-2")}
    at_the_end = {hop["name"]: hop["service"] for hop in hops if hop["current"]}
    listened = {row["name"]: row["listened_to"] for row in report["replicas"]}
    assert at_the_end == {name: listened[name] for name in ("replica-1", "replica-4")}
    assert set(at_the_end.values()) <= {"relay-1", "relay-2"}
    assert (listened["replica-2"], listened["replica-3"]) == ("publisher-service", "the database")
    for name in ("relay-1", "relay-2", "replica-1", "replica-4"):
        assert sum(hop["delivered"] + hop["repaired"] for hop in hops if hop["name"] == name) > 0, name


def page_of_the_audit_opens_without_errors(report: dict[str, Any], tmp_path: Path) -> None:
    try:
        with chromium(tmp_path) as browser:
            browser.get(Path(report["audit"]["page"]).as_uri())
            assert console(browser) == []
            assert browser.find_elements(By.CSS_SELECTOR, "#figure-balance .main-svg .trace path")
            (top,) = browser.find_elements(By.CSS_SELECTOR, "#tree .tree > ul > li")
            assert top.text.startswith("demo service")
            assert len(top.find_elements(By.CSS_SELECTOR, "ul[aria-label='Below relay-2'] > li")) >= 1
    except ConfigError as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.long
def test_the_audit_names_the_object_that_was_corrupted_in_a_replica(tmp_path: Path) -> None:
    folder, results = tmp_path / "tmp", tmp_path / "results"
    folder.mkdir()
    small = ("--routes", "1000", "--changes", "300", "--seconds", "2")
    done = call("demo_app.py", "--sabotage", "-f", "json", *small, "--out", str(results), folder=folder)
    assert done.returncode == 4, done.stderr
    report = msgspec.json.decode(done.stdout)
    sabotaged = report["sabotaged"]
    (fault,) = report["audit"]["faults"]
    assert {name: fault[name] for name in ("of", "verdict", "name", "table", "key")} == {
        "of": "state", "verdict": "wrong_value", "name": sabotaged["replica"], "table": sabotaged["table"],
        "key": sabotaged["key"],
    }  # fmt: skip
    assert [row["from_database"]["number"] for row in report["replicas"]] == [1, 0, 0, 0]
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []


@contextmanager
def demo_in_the_middle(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A demo that has just killed one of its processes, while all others work."""
    command = [sys.executable, str(ROOT / "tools" / "demo_app.py"), *CUT]
    with subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        try:
            for line in running.stderr:
                if "was killed" in line:
                    break
            yield running
        finally:
            running.kill()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_no_files_and_processes(how: signal.Signals, tmp_path: Path) -> None:
    with demo_in_the_middle(tmp_path) as running:
        assert len(processes_of(tmp_path)) > 2
        running.send_signal(how)
        output, errors = running.communicate(timeout=DEADLINE)
    assert running.returncode == 130
    assert output == ""
    assert "Traceback" not in errors
    assert errors.endswith("tools/demo: interrupted; every process was stopped and every file removed\n")
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.long
@pytest.mark.slow
def test_killed_demo_ends_its_processes(tmp_path: Path) -> None:
    with demo_in_the_middle(tmp_path) as running:
        children = [pid for pid in processes_of(tmp_path) if pid != running.pid]
        assert len(children) > 1
        running.kill()
        assert_all_end(children)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--changes", "10"], "argument --changes: '10' is not a whole number from 300 on"),
        (["--changes", "many"], "argument --changes: 'many' is not a whole number from 300 on"),
        (["--seconds", "-1"], "argument --seconds: '-1' is not a whole number from 0 on"),
        (["-f", "xml"], "argument -f/--format: invalid choice: 'xml'"),
        (["--fast"], "unrecognized arguments: --fast"),
        (
            ["--full", "--changes", "900"],
            "argument --changes: '900' is not a whole number from 1000 on, as --full needs",
        ),
        (["--full", "--sabotage"], "--sabotage is an option without --full"),
        (["--database", "mariadb"], "--database is an option with --full"),
        (["--driver", "nats", "--database", "sqlite"], "--database is an option with --full"),
        (
            ["--driver", "pgnotify", "--database", "mariadb"],
            "--driver pgnotify needs a private PostgreSQL server, which it starts; leave out --database",
        ),
    ],
)
def test_invalid_option_is_reported_in_one_sentence(
    arguments: Sequence[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert_one_sentence(capsys.readouterr().err, f"tools/demo: {reason}")


def test_full_disk_is_reported_in_one_sentence(tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    done = call("demo_app.py", folder=tmp_path, limit=little_room)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert_one_sentence(done.stderr.splitlines(keepends=True)[-1], "tools/demo: ")
    assert list(tmp_path.iterdir()) == []


def test_missing_large_files_are_reported_in_one_sentence(tmp_path: Path) -> None:
    done = call("demo_app.py", "--full", "--data", str(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, f"tools/demo: {tmp_path} does not hold rib-rrc00-20000111.jsonl.gz; name")


@pytest.fixture
def large_files(tmp_path: Path) -> Path:
    """A folder with the small files under the names of the large ones."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "rib-rrc00-20000111.jsonl.gz").symlink_to(DATA / "rib-small.jsonl.gz")
    (folder / "updates-rrc00-19991214.jsonl.gz").symlink_to(DATA / "updates-small.jsonl.gz")
    return folder


def full_set(url: str, large_files: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the output with ``-f json`` of a short run with the large files' names."""
    given = ["--data", str(large_files), "--database", url, "--routes", "5000", "--changes", "2000"]
    done = call("demo_app.py", "--full", "-f", "json", *given, *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = msgspec.json.decode(done.stdout)
    assert report["equal"] is True
    assert report["broken"] == []
    assert (report["routes"], report["changes"]) == (5000, 2000)
    assert [row["twice"] for row in report["replicas"]] == [0, 0]
    return report


@pytest.mark.slow
@pytest.mark.long
def test_the_full_set_with_a_service_killed_three_times(database_url: str, large_files: Path, tmp_path: Path) -> None:
    report = full_set(database_url, large_files, tmp_path, "--seconds", "8")
    assert sorted(kill["victim"] for kill in report["kills"]) == ["publisher-service"] * 3 + ["worker-2"]
    assert min(kill["unsent"] for kill in report["kills"]) > 0
    assert report["service_starts"] == 4
    # The second replica subscribes to its topic and the default topic.
    assert [(row["fulls"], row["resyncs"], row["kills"]) for row in report["replicas"]] == [(1, 0, 0), (2, 0, 0)]


@pytest.mark.slow
@pytest.mark.long
def test_the_full_set_by_polling(sqlite_url: str, large_files: Path, tmp_path: Path) -> None:
    report = full_set(sqlite_url, large_files, tmp_path, "--transport", "polling")
    assert sorted(kill["victim"] for kill in report["kills"]) == ["everything", "writer-2"]
    assert report["service_starts"] == 0
    assert [(row["transport"], row["kills"]) for row in report["replicas"]] == [("polling", 1), ("polling", 0)]


def test_unknown_database_is_reported_in_one_sentence(large_files: Path, tmp_path: Path) -> None:
    done = call("demo_app.py", "--full", "--data", str(large_files), "--database", "oracle", folder=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(
        done.stderr, "tools/demo: argument --database: 'oracle' is neither sqlite, postgresql, mariadb nor a URL"
    )


def test_database_that_cannot_be_opened_is_reported_in_one_sentence(large_files: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/net.sqlite"
    done = call("demo_app.py", "--full", "--data", str(large_files), "--database", url, folder=tmp_path)
    assert done.returncode == 3
    assert_one_sentence(done.stderr, "tools/demo: ")
    assert "nowhere" in done.stderr
