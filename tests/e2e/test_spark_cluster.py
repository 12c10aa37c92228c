"""A real Spark standalone cluster: it comes up, is said to be there twice, and goes without a trace."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import spark_cluster_app
from spark_cluster_app import Cluster

from pubsub_lib.audit.summary import nothing

ROOT = Path(__file__).resolve().parent.parent.parent


def call(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "tools" / "spark_cluster_app.py"), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
def test_two_workers_register_and_stop_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    done = call(folder, "start")
    assert done.returncode == 0, done.stderr
    try:
        cluster = msgspec.json.decode((folder / "cluster.json").read_bytes(), type=Cluster)
        assert done.stdout.strip() == cluster.master
        assert len(cluster.processes) == 3
        again = call(folder, "start")
        assert (again.returncode, again.stderr.count("\n")) == (3, 1)
        assert f"{folder} holds a cluster already; stop it" in again.stderr
    finally:
        stopped = call(folder, "stop")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert not folder.exists()
    # Who nobody has heard of yet may still be in the table of processes.
    assert [pid for pid in cluster.processes if spark_cluster_app.started(pid)] == []
    assert "holds no cluster; start one" in call(folder, "stop").stderr


def test_a_process_that_came_by_the_same_number_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        try:
            written = Cluster("spark://127.0.0.1:1", {other.pid: "1", os.getpid(): "2"})
            (tmp_path / "cluster.json").write_bytes(msgspec.json.encode(written))
            spark_cluster_app.stop(tmp_path)
            assert other.poll() is None
        finally:
            other.kill()


def test_two_audits_of_the_same_are_the_same_whenever_they_were_made() -> None:
    one = nothing(["no journals"])
    later = msgspec.structs.replace(one, audited=one.audited + 1)
    assert spark_cluster_app.comparable(one) == spark_cluster_app.comparable(later)
    other = msgspec.structs.replace(one, problems=[])
    assert spark_cluster_app.comparable(one) != spark_cluster_app.comparable(other)
