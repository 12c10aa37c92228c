"""``tools/chaos`` in short runs: its checks pass, a planted wrong object fails it, and it leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.test_demo import DEADLINE, ROOT, call, environment, processes_of

SHORT = ("--minutes", "0.1", "--faults", "80", "--seed", "3", "-f", "json")


def report_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


@pytest.mark.slow
def test_short_run_ends_equal_and_audited(tmp_path: Path) -> None:
    folder, results = tmp_path / "tmp", tmp_path / "results"
    folder.mkdir()
    done = call("chaos_app.py", *SHORT, "--out", str(results), folder=folder)
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert (report["seed"], report["broken"], report["ended"]) == (3, [], [])
    assert report["number_of_faults"] == sum(row["planned"] for row in report["faults"]) > 0
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
def test_replica_with_a_corrupted_object_fails_the_run(tmp_path: Path) -> None:
    done = call("chaos_app.py", *SHORT, "--only", "cut", "--no-audit", "--sabotage", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    report = report_of(done)
    assert [row["from_database"]["number"] for row in report["replicas"]] == [1, 0, 0, 0, 0]
    _, key = report["sabotaged"]
    assert f"tools/chaos: replica-1 differs from the database in 1 objects, for example '{key}'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
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
