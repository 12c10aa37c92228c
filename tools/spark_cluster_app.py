"""``tools/spark_cluster``: a Spark standalone cluster on this machine, from the pip package of pyspark, without ssh.

::

    tools/spark_cluster start                          # two workers of one core; prints the master's URL
    pubsub-audit run … --master spark://127.0.0.1:PORT
    tools/spark_cluster check FOLDER --store URL       # audits FOLDER locally and on the cluster, and compares
    tools/spark_cluster stop

All files, including those of the running master and workers, are in one folder, which ``stop`` removes; ``start``
accepts a new folder or an empty one of this user. Ports are free ports of the loopback.
"""

import argparse
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from _command_line import Parser, positive
from _processes import free_ports
from _termination import interrupt_on_signals

from pubsub_lib.audit.ingest.store_journal import StoreSide
from pubsub_lib.audit.report.report import SUMMARY, read_summary
from pubsub_lib.audit.report.summary import Summary
from pubsub_lib.audit.spark.java import for_spark, found_java
from pubsub_lib.errors import ConfigError, PubSubError

DONE, DIFFERS, NOT_RUN = 0, 1, 3
EXIT_CODES = "exit codes: 0 done, for check: same results; 1 the results differ; 2 invalid option; 3 the command failed"
STATE = "cluster.json"
PATIENCE = 120.0
"""Maximum number of seconds for the start of master and workers."""
END = 10.0
"""Maximum number of seconds for a normal end."""
LOOK = 0.2
MEMORY = "1g"
"""Memory of a worker, and of the audit's process there."""
DAEMONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options of master and workers: they do little and need not be fast."""


class ClusterError(PubSubError):
    """The cluster is unavailable, or an audit on it failed."""


class Cluster(msgspec.Struct, frozen=True):
    """A running cluster. ``processes``: start time of each in clock ticks since boot, so that no other is ended."""

    master: str
    processes: Mapping[int, str]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    top = Parser(prog="tools/spark_cluster", description="A local Spark standalone cluster.", epilog=EXIT_CODES)
    top.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / f"pubsub-spark-{os.geteuid()}",
        help="folder of all its files (default: %(default)s)",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="start master and workers, and print the master's URL")
    start.add_argument("--workers", type=positive, default=2, metavar="N", help="number of workers (default: 2)")
    start.add_argument("--cores", type=positive, default=1, metavar="N", help="cores of each worker (default: 1)")
    commands.add_parser("stop", help="end master and workers, and remove the folder")
    check = commands.add_parser("check", help="audit journals locally and on the cluster, and compare")
    check.add_argument("journals", type=Path, metavar="FOLDER")
    check.add_argument("--store", metavar="URL", help="as for pubsub-audit run")
    return top.parse_args(arguments)


# -- start and stop --------------------------------------------------------------------------------------------------


def start(folder: Path, workers: int, cores: int) -> str:
    """The URL of the master, when all workers have registered. Raises ClusterError, ConfigError, OSError."""
    claim(folder)
    port, page = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    address = ("--host", "127.0.0.1", "--port")
    programs = {"master": ["master.Master", *address, str(port), "--webui-port", str(page)]}
    for number in range(1, workers + 1):
        work = ["--work-dir", str(folder / f"work-{number}"), "--cores", str(cores), "--memory", MEMORY]
        programs[f"worker-{number}"] = ["worker.Worker", *address, "0", "--webui-port", "0", *work, url]
    made = Cluster(url, {})
    try:
        environment = surroundings(folder)
        for name, arguments in programs.items():
            pid = _spawn(folder, name, arguments, environment)
            made = Cluster(url, {**made.processes, pid: started(pid)})
            (folder / STATE).write_bytes(msgspec.json.encode(made))
        _wait(f"http://127.0.0.1:{page}/json/", workers, made, folder)
    except BaseException:
        _end(made)
        shutil.rmtree(folder)
        raise
    return url


def claim(folder: Path) -> None:
    """Create it for this user only. Raises ConfigError unless new or empty, ClusterError when it holds a cluster."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_owner(folder)
    if (folder / STATE).exists():
        raise ClusterError(f"{folder} holds a cluster already; stop it, or name another --folder")
    if any(folder.iterdir()):
        raise ConfigError(f"{folder} holds files that are not of a cluster; name a new or an empty --folder")
    folder.chmod(0o700)


def _check_owner(folder: Path) -> None:
    """Raises ConfigError for another user's folder, or a symbolic link, because the default name can be guessed."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(f"{folder} is not a folder of this user; name another --folder")


def surroundings(folder: Path) -> Mapping[str, str]:
    """The environment of master and workers, and of an audit's processes there. Raises ConfigError."""
    java = found_java()
    return {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": DAEMONS,
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(for_spark(java, folder / "java")),
    }


def _spawn(folder: Path, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    return running.pid


def _wait(page: str, workers: int, cluster: Cluster, folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(page, timeout=LOOK * 10) as answer:
                if json.load(answer)["aliveworkers"] >= workers:
                    return
        except (OSError, ValueError):
            pass  # not yet
        gone = [number for number, pid in enumerate(cluster.processes) if not _alive(pid, cluster)]
        if gone:
            name = f"worker-{gone[0]}" if gone[0] else "master"
            lines = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
            raise ClusterError(f"the {name} ended: {lines[-1] if lines else 'its log is empty'}")
        time.sleep(LOOK)
    raise ClusterError(f"not all {workers} workers registered within {PATIENCE:.0f} s; see the logs in {folder}")


def read(folder: Path) -> Cluster:
    """The cluster of a folder. Raises ClusterError, and ConfigError for another user's folder."""
    try:
        _check_owner(folder)
        return msgspec.json.decode((folder / STATE).read_bytes(), type=Cluster)
    except (OSError, msgspec.MsgspecError) as error:
        raise ClusterError(f"{folder} holds no cluster; start one, or name its --folder") from error


def stop(folder: Path) -> None:
    """End the cluster's processes, and no others, and remove its folder. Raises ClusterError, ConfigError, OSError."""
    _end(read(folder))
    shutil.rmtree(folder)


def _end(cluster: Cluster) -> None:
    running = [pid for pid in cluster.processes if _alive(pid, cluster)]
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in running:
            _signal(pid, how)
        until = time.monotonic() + END
        while running and time.monotonic() < until:
            time.sleep(LOOK)
            running = [pid for pid in running if _alive(pid, cluster)]


def _signal(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass  # the process has just ended


def started(pid: int) -> str:
    """The start time of a process; "" when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _alive(pid: int, cluster: Cluster) -> bool:
    return started(pid) == cluster.processes[pid] != ""


# -- check -----------------------------------------------------------------------------------------------------------


def check(folder: Path, journals: Path, store: str | None) -> tuple[Summary, list[str]]:
    """The local audit, and its differences from the audit on the cluster; no differences when the results are the same.

    Raises ClusterError, also when the journals are empty, because two empty results prove nothing.
    """
    master = read(folder).master
    with tempfile.TemporaryDirectory(prefix="pubsub-check-") as scratch:
        folders = [journals]
        if store:
            # Read the store only once, because each reading is a separate run, which trails name.
            with StoreSide(store) as side:
                folders.append(side.write(Path(scratch) / "store"))
            if side.lacking:
                raise ClusterError(side.lacking)
        here = _audited(folders, "local[2]", Path(scratch) / "here", folder)
        there = _audited(folders, master, Path(scratch) / "there", folder)
    one, other = comparable(here), comparable(there)
    return here, [f"{name}: {_first(one[name], other[name])}" for name in one if one[name] != other[name]]


def _first(here: object, there: object) -> str:
    """The first difference of two values or of two lists, with both values."""
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        here, there = next((one, other) for one, other in zip(here, there, strict=True) if one != other)
    return f"{here} here, {there} there"


def _audited(folders: Sequence[Path], master: str, out: Path, folder: Path) -> Summary:
    command = [sys.executable, "-m", "pubsub_lib.audit.main", "run", *map(str, folders), "--out", str(out)]
    command += ["--master", master]
    done = subprocess.run(command, env=surroundings(folder), capture_output=True, text=True, check=False)
    if not (out / SUMMARY).is_file():
        lines = done.stderr.strip().splitlines()
        raise ClusterError(f"the audit on {master} ended with status {done.returncode}: {lines[-1] if lines else ''}")
    found = read_summary(out)
    if found.problems:
        raise ClusterError(f"the audit on {master} has a problem: {found.problems[0]}")
    if not any(balance.expected for balance in found.balance.values()):
        raise ClusterError(f"the audit on {master} found no deliveries to judge; name a folder with a run's journals")
    return found


def _sums(summary: Summary) -> str:
    """How much was compared: without an anomaly little is."""
    expected = sum(each.expected for each in summary.balance.values())
    return f"{expected} expected, exit code {summary.exit_code}"


def comparable(summary: Summary) -> Mapping[str, object]:
    """All of a summary but when it was made."""
    return {name: value for name, value in msgspec.to_builtins(summary).items() if name != "audited"}


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    options = parse(arguments)
    try:
        if options.command == "start":
            print(start(options.folder, options.workers, options.cores))
        elif options.command == "stop":
            stop(options.folder)
        else:
            found, different = check(options.folder, options.journals, options.store)
            if different:
                print(f"tools/spark_cluster: the results differ in {'; '.join(different)}", file=sys.stderr)
                return DIFFERS
            print(f"The same here and on the cluster: {_sums(found)}.")
    except KeyboardInterrupt:
        print("tools/spark_cluster: interrupted", file=sys.stderr)
        return 130
    except (PubSubError, ConfigError, OSError) as error:
        print(f"tools/spark_cluster: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_RUN
    return DONE


if __name__ == "__main__":
    interrupt_on_signals()
    sys.exit(main(sys.argv[1:]))
