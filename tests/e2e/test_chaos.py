"""``tools/chaos`` in short runs: its checks pass, a planted wrong object fails it, and it leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _chaos.plan import BROKER, DATABASE
from chaos_app import parse, planned

from tests.e2e.test_demo import DEADLINE, ROOT, call, environment, processes_of
from tests.e2e.test_demo_drivers import SERVED, skip_without_servers

SHORT = ("--minutes", "0.1", "--faults", "80", "--seed", "3", "-f", "json")
SERVED_RUN = ("--minutes", "0.15", "--faults", "80", "-f", "json")
SEEDS = {"nats": 277, "pgnotify": 49, "redis": 277}
"""The server is killed and paused, and, if it is a broker, a replica is slow while the broker runs."""


def report_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.long
def test_short_run_ends_equal_and_audited(tmp_path: Path) -> None:
    folder, results = tmp_path / "tmp", tmp_path / "results"
    folder.mkdir()
    done = call("chaos_app.py", *SHORT, "--out", str(results), folder=folder)
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert (report["seed"], report["broken"], report["ended"]) == (3, [], [])
    # On a busy machine a storm, a hostile peer or an imposter may not be ready before its end.
    assert all(row["struck"] + row["absent"] == row["planned"] for row in report["faults"])
    assert report["number_of_faults"] == sum(row["struck"] for row in report["faults"]) > 0
    assert report["dead"] == []
    assert report["deliveries"] > 100
    assert report["changes"] > 0
    for row in report["replicas"]:
        assert row["from_database"]["number"] == row["twice"] == 0
        assert row["objects"] > 0
    for row in report["workers"]:
        assert row["stored"] >= row["acknowledged"] > 0
    assert report["audit"]["exit_code"] == 0
    assert (results / "summary.json").is_file()
    assert not (tmp_path / "results-run").exists()
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []


@pytest.mark.slow
@pytest.mark.long
def test_full_disks_give_unknown_deliveries_and_no_other_fault(tmp_path: Path) -> None:
    # Longer than the first window and its bound: a disk that is full at the end also takes the close of a journal.
    options = ("--minutes", "0.6", "--faults", "40", "--only", "disk", "--seed", "3", "-f", "json")
    done = call("chaos_app.py", *options, "--out", str(tmp_path / "results"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert (report["broken"], report["audit_problems"], report["audit"]["exit_code"]) == ([], [], 32)
    assert [row["kind"] for row in report["faults"]] == ["disk"]
    verdicts = {count["verdict"] for count in report["audit"]["counts"] if count["of"] == "delivery"}
    assert "unknown" in verdicts <= {"ok", "repaired", "excused", "unknown"}


@pytest.mark.slow
@pytest.mark.long
def test_lies_are_undone_and_the_audit_has_evidence(tmp_path: Path) -> None:
    options = ("--minutes", "0.6", "--faults", "20", "--only", "lie", "--seed", "3", "-f", "json")
    done = call("chaos_app.py", *options, "--out", str(tmp_path / "results"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert (report["broken"], report["audit_problems"]) == ([], [])
    assert [row["from_database"]["number"] for row in report["replicas"]] == [0] * 5
    assert [row["twice"] for row in report["replicas"]] == [0] * 5
    assert [row["late"] for row in report["replicas"]] == [""] * 5
    assert (report["dead"], report["unexplained"]) == ([], [])
    assert all(row["stored"] >= row["acknowledged"] > 0 for row in report["workers"])
    assert sum(row["lies"] for row in report["replicas"]) > 0, "no replica believed a lie"
    verdicts = {count["verdict"] for count in report["audit"]["counts"]}
    false = {"corrupt", "phantom", "phantom_publish", "phantom_commit", "foreign_history"}
    assert verdicts & false, "no evidence of the lies"
    assert "lost" not in verdicts


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", SERVED)
def test_short_run_with_a_killed_and_paused_server_ends_equal_and_audited(
    name: str, open_folder: Path, tmp_path: Path
) -> None:
    skip_without_servers(name, tmp_path)
    options = (*SERVED_RUN, "--driver", name, "--seed", str(SEEDS[name]))
    plan = planned(parse(options))
    server = BROKER if plan.cast.brokered else DATABASE
    assert {fault.kind for fault in plan.faults if fault.victim == server} == {"kill", "pause"}
    done = call("chaos_app.py", *options, "--out", str(tmp_path / "results"), folder=open_folder)
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert (report["driver"], report["broken"], report["unexplained"]) == (name, [], [])
    assert [row["from_database"]["number"] for row in report["replicas"]] == [0] * 5
    assert report["deliveries"] > 0
    assert report["audit_problems"] == []
    if plan.cast.brokered:
        assert report["cut_off"] > 0, "no slow replica was cut off"
    assert list(open_folder.iterdir()) == []
    assert processes_of(open_folder) == []


@pytest.mark.slow
@pytest.mark.long
def test_replica_with_a_corrupted_object_fails_the_run(tmp_path: Path) -> None:
    done = call("chaos_app.py", *SHORT, "--only", "cut", "--no-audit", "--sabotage", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    report = report_of(done)
    assert [row["from_database"]["number"] for row in report["replicas"]] == [1, 0, 0, 0, 0]
    _, key = report["sabotaged"]
    assert f"tools/chaos: replica-1 differs from the database in 1 objects, for example '{key}'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_no_files_and_processes(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "chaos_app.py"), "--minutes", "10", "--no-audit"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "every process works" in line:
                break
        assert len(processes_of(tmp_path)) > 5
        running.send_signal(how)
        output, errors = running.communicate(timeout=DEADLINE)
    assert (running.returncode, output) == (130, "")
    assert errors.endswith("tools/chaos: interrupted; every process was stopped and every file removed\n")
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []
