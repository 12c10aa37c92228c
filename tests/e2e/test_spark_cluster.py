"""A real Spark standalone cluster: it starts, stops without leftovers, and (on request) gives the local result."""

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import spark_cluster_app
from spark_cluster_app import Cluster, ClusterError

from pubsub_lib.audit.report.summary import nothing
from pubsub_lib.audit.spark.session import QUICK_JVM
from pubsub_lib.errors import ConfigError, StoreUnavailable
from pubsub_lib.store import Store
from tests.unit.audit.arrivals import cut, write_part
from tests.unit.audit.scenario import Scenario

ROOT = Path(__file__).resolve().parent.parent.parent
ALSO_CHECK = "PUBSUB_TEST_CLUSTER" in os.environ
"""Both audits together take three processor minutes, of the twenty that all tests may take."""
QUICK = f"""\
spark.executor.extraJavaOptions {QUICK_JVM}
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
"""
"""With so few rows, generating optimized code would take most of the time, in each of three processes."""


def call(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "tools" / "spark_cluster_app.py"), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


def faulty(folder: Path) -> Path:
    """Journals in which the last of five messages is applied twice, and an object is missing."""
    world = Scenario("")
    world.follow()
    for number in range(1, 6):
        sent = world.publish(key=f"k{number}")
        world.receive(sent)
    world.receive(sent, after=50)
    world.stored({f"k{number}": (number, 1000 + number) for number in range(1, 6)})
    world.held({f"k{number}": (number, 1000 + number) for number in (1, 2, 4, 5)}, world.time + 5_000, 5)
    folder.mkdir()
    for file in cut("", world.rows(), random.Random(5)):
        write_part(folder, file)
    return folder


@pytest.mark.long
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
        if ALSO_CHECK:
            (folder / "spark-defaults.conf").write_text(QUICK)
            checked = call(folder, "check", str(faulty(tmp_path / "journals")))
            assert (checked.returncode, checked.stderr) == (0, "")
            assert checked.stdout == "The same here and on the cluster: 5 expected, exit code 20.\n"
    finally:
        stopped = call(folder, "stop")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert not folder.exists()
    # A process that ended but was not reaped may still be in the process table.
    assert [pid for pid in cluster.processes if spark_cluster_app.started(pid)] == []
    assert "holds no cluster; start one" in call(folder, "stop").stderr


def test_stop_does_not_end_another_process_with_a_reused_pid(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        try:
            written = Cluster("spark://127.0.0.1:1", {other.pid: "1", os.getpid(): "2"})
            (tmp_path / "cluster.json").write_bytes(msgspec.json.encode(written))
            spark_cluster_app.stop(tmp_path)
            assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.long
def test_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    kept = tmp_path / "thesis.txt"
    kept.touch()
    for command, reason in (("start", "holds files that are not of a cluster; name"), ("stop", "holds no cluster")):
        done = call(tmp_path, command)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
        assert f"{tmp_path} {reason}" in done.stderr
        assert list(tmp_path.iterdir()) == [kept]


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link = tmp_path / "cluster", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    (folder / "cluster.json").write_bytes(msgspec.json.encode(Cluster("spark://127.0.0.1:1", {})))
    for other, each in ((0, link), (1, folder)):
        monkeypatch.setattr(os, "geteuid", lambda other=other: os.getuid() + other)
        for act in (spark_cluster_app.claim, spark_cluster_app.read, spark_cluster_app.stop):
            with pytest.raises(ConfigError, match=f"{each} is not a folder of this user"):
                act(each)
    assert (folder / "cluster.json").exists()


def test_failed_start_names_the_reason_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .*, but .*/bin/java does not exist"):
        spark_cluster_app.start(tmp_path / "cluster", 1, 1)
    assert list(tmp_path.iterdir()) == []


def test_check_fails_when_both_audits_have_no_input(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_bytes(msgspec.json.encode(Cluster("spark://127.0.0.1:1", {})))
    with pytest.raises(ClusterError, match=r"has a problem: .*nowhere cannot be read"):
        spark_cluster_app.check(tmp_path, tmp_path / "nowhere", None)


@pytest.mark.empty_database
def test_check_refuses_a_missing_and_an_empty_store(tmp_path: Path, sqlite_url: str) -> None:
    (tmp_path / "cluster.json").write_bytes(msgspec.json.encode(Cluster("spark://127.0.0.1:1", {})))
    with pytest.raises(StoreUnavailable, match=r"store\.sqlite"):
        spark_cluster_app.check(tmp_path, tmp_path, sqlite_url)
    Store(sqlite_url).close()
    with pytest.raises(ClusterError, match="has neither objects nor a changelog"):
        spark_cluster_app.check(tmp_path, tmp_path, sqlite_url)


def test_comparison_ignores_the_time_of_the_audit() -> None:
    one = nothing(["no journals"])
    later = msgspec.structs.replace(one, audited=one.audited + 1)
    assert spark_cluster_app.comparable(one) == spark_cluster_app.comparable(later)
    other = msgspec.structs.replace(one, problems=[])
    assert spark_cluster_app.comparable(one) != spark_cluster_app.comparable(other)
