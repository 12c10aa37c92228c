"""A host of the tests: a publisher service, workers, and a replica that records the calls of its handler."""

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _patience import longest
from _processes import free_ports, pause, poll

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.errors import StoreBusy
from tests.e2e.network import Namespace
from tests.e2e.warm_start import Running, started

ROOT = Path(__file__).resolve().parents[2]
LONG = longest(120.0)


class Host:
    """One host: its configuration and its processes. ``close`` ends them all."""

    def __init__(
        self,
        folder: Path,
        database: str,
        name: str = "api-1",
        at: Namespace | None = None,
        follow_interval: float = 0.05,
        trim_interval: float = 60.0,
        files: int | None = None,
        role: str = "origin",
        **options: Any,
    ) -> None:
        """``at``: a network namespace; without it, this machine's loopback. ``follow_interval``, seconds: the default
        shows missed links soon; use more for a service that runs long, because the default needs 7 % of a processor.
        ``trim_interval``, seconds: interval at which the service removes expired leases and old links.
        ``files``: the hard limit of open files of the host's processes; the soft one is a quarter of it. ``role``: of
        the service.
        """
        self.name = name
        self.address = "127.0.0.1" if at is None else at.its
        self._prefix = [] if at is None else at.prefix
        if files is not None:
            self._prefix = ["prlimit", f"--nofile={files // 4}:{files}", *self._prefix]
        self.database = database
        folder.mkdir(parents=True, exist_ok=True)
        self.metrics_port, port = free_ports(2)
        self.config = folder / "net.conf"
        given = {"max_idle_time": 3.0, "message_delay_window": 0.2, "sync_jitter": 0.01, "sync_interval": 0.01}
        general = "".join(f"{key} = {value}\n" for key, value in {**given, **options}.items())
        self.config.write_text(
            f"[pubsub]\nstore_url = {database}\nservice_name = {name}\nenable_pub_sub = true\n"
            f"publisher_bind_address = {self.address}\npublisher_port = {port}\n"
            f"insecure = {str(at is not None).lower()}\n"  # the other end of the cable is another host
            f"publisher_multiproc_socket = {folder}/hop/socket\n{general}"
            f"[publisher_service]\nrole = {role}\nlease = 2\nfollow_interval = {follow_interval}\ngrace = 0.3\n"
            f"trim_interval = {trim_interval}\n"
            f"metrics_port = {self.metrics_port}\nmetrics_address = {self.address}\n"
        )
        self.settings = Settings.from_file(self.config)
        self.program = ["-m", "pubsub_lib.service"]
        """The arguments of Python that start the service."""
        self.environment: dict[str, str] = {}
        """Additional environment variables of the host's processes."""
        self._processes: list[Running] = []
        self._complaints = folder / "stderr"

    def change(self, old: str, new: str) -> None:
        """Edit the configuration."""
        text = self.config.read_text()
        assert old in text
        self.config.write_text(text.replace(old, new))
        self.settings = Settings.from_file(self.config)

    def refused(self) -> tuple[int, str]:
        """Start a service that cannot run; return its exit code and its output."""
        done = subprocess.run(
            [sys.executable, "-m", "pubsub_lib.service", "--config-file", str(self.config)],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"},
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def service(self, failpoint: str = "") -> Running:
        """Start a service and wait until it is ready."""
        process = self.begin(failpoint)
        self.must_get_ready(process)
        return process

    def begin(self, failpoint: str = "") -> Running:
        """Start a service; do not wait for it."""
        return self._start([*self.program, "--config-file", str(self.config)], failpoint)

    def must_get_ready(self, process: Running) -> None:
        """Wait until a started service is ready."""
        assert poll(lambda: self.is_ready() or process.poll() is not None, LONG), self._complaints.read_text()
        assert process.poll() is None, (process.returncode, self._complaints.read_text())

    def is_ready(self) -> bool:
        """Whether the endpoint reports ready."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:{self.metrics_port}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str, what: str) -> float:
        """Return one metric of the service."""
        with urllib.request.urlopen(f"http://{self.address}:{self.metrics_port}/metrics", timeout=LONG) as answer:
            lines = answer.read().decode().splitlines()
        prefix = f'pubsub_service_{name}{{what="{what}"}} '
        return float(next(line for line in lines if line.startswith(prefix)).removeprefix(prefix))

    def published(self) -> float:
        """The number of links that the service has published."""
        return self.metric("links_total", "handed") + self.metric("links_total", "followed")

    def worker(self, failpoint: str = "", origin: str | None = None) -> Running:
        """Start a worker, which then waits for orders."""
        script = str(Path(__file__).with_name("service_worker.py"))
        process = self._start([script, str(self.config), self.name if origin is None else origin], failpoint)
        assert answer(process) == "ready\n", process.communicate()
        return process

    def controller(self, failpoint: str = "", topics: Iterable[str] = ()) -> Running:
        """Start a controller, which prints "synced" when it is synced. ``topics``: that it also follows."""
        script = str(Path(__file__).with_name("service_controller.py"))
        return self._start([script, str(self.config), *topics], failpoint)

    def close(self) -> None:
        """Kill the remaining processes."""
        for process in self._processes:
            process.kill()
            process.communicate()

    def _start(self, arguments: list[str], failpoint: str) -> Running:
        variables = {
            "PUBSUB_LIB_FAILPOINT": failpoint,
            "PYTHONFAULTHANDLER": "1",  # for answer()
            **self.environment,
        }
        process = started(arguments, variables, self._complaints, self._prefix)
        self._processes.append(process)
        return process


def answer(process: Running) -> str:
    """The next line that a process writes; empty at its end. One that writes nothing for ``LONG`` seconds is aborted:
    the file stderr of the host's folder then shows where each of its threads waited.
    """
    assert process.stdout is not None

    def abort() -> None:
        process.send_signal(signal.SIGABRT)
        process.send_signal(signal.SIGCONT)  # a test may have stopped it

    late = threading.Timer(LONG, abort)
    late.start()
    try:
        return process.stdout.readline()
    finally:
        late.cancel()


def order(worker: Running, count: int) -> None:
    """Order ``count`` transactions from a worker; do not wait for it."""
    assert worker.stdin is not None
    worker.stdin.write(f"{count}\n")
    worker.stdin.flush()


def begin(worker: Running) -> None:
    """Order one transaction, and wait until only its commit is left, which waits for :func:`commit`."""
    assert worker.stdin is not None
    worker.stdin.write("announce 1\n")
    worker.stdin.flush()
    assert answer(worker) == "commits\n"


def commit(worker: Running) -> None:
    """Let a worker commit after :func:`begin`; do not wait for it."""
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def pause_between_transactions(process: Running, store: Store) -> None:
    """Stop a process by SIGSTOP, but not while it has a transaction open, which would block the database."""
    while True:
        assert pause(process.pid)
        try:
            store.unique_id("pause")
        except StoreBusy:
            process.send_signal(signal.SIGCONT)
            store.unique_id("pause")  # it ends its transaction first; else it might never run between two signals
        else:
            return


def done(worker: Running) -> int:
    """Wait for the ordered transactions; return the store's position after them."""
    line = answer(worker)
    assert line, f"the worker ended with {worker.wait(LONG)}; its error is in the file stderr of the host's folder"
    return int(line)


def write(worker: Running, count: int) -> int:
    """Order transactions and wait for them."""
    order(worker, count)
    return done(worker)


def fork(worker: Running, count: int, how: str = "fork") -> int:
    """Order ``count`` transactions from a child that the worker forks, or spawns, now; wait for them."""
    assert worker.stdin is not None
    worker.stdin.write(f"{how} {count}\n")
    worker.stdin.flush()
    return done(worker)


class Watched:
    """A replica of all written topics, with a handler that stores the versions of its calls."""

    def __init__(self, settings: Settings, topics: tuple[str, ...] = ("t0", "t1")) -> None:
        self.topics = topics
        self.versions: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self.replica = Replica(settings, topics)
        self.replica.on("item", self._handle)
        self.first_fulls = 0

    def __enter__(self) -> "Watched":
        self.replica.start()
        self.replica.wait_synced(LONG)
        self.first_fulls = self.fulls()
        return self

    def __exit__(self, *_: object) -> None:
        self.replica.close()

    def _handle(self, event: Any) -> None:
        with self._lock:
            self.versions.setdefault(event.key, []).append(event.version)

    def fulls(self) -> int:
        """Number of full syncs begun so far."""
        return sum(self.replica.status().counters.fulls.values())

    def syncs(self) -> int:
        """Number of syncs begun so far, full syncs and deltas."""
        return self.fulls() + sum(self.replica.status().counters.deltas.values())

    def differs(self, store: Store) -> bool:
        """Whether the replica differs from the store now."""
        return self._have() != self._shown(store)

    def _shown(self, store: Store) -> dict[str, tuple[int, bytes]]:
        return {record.key: (record.version, record.value) for record in store.objects() if record.topic in self.topics}

    def _have(self) -> dict[str, tuple[int, bytes]]:
        return {record.key: (record.version, record.json) for record in self.replica.records("item")}

    def must_come_to(self, position: int, store: Store) -> None:
        """Check that the replica equals the database in time, without a duplicate callback or another full sync."""
        self.replica.wait_handled(position, LONG, topics=self.topics)
        self.must_equal(store)

    def must_equal(self, store: Store) -> None:
        """Check that the replica equals the database now, without a duplicate callback or another full sync."""
        assert self._have() == self._shown(store)
        for key, versions in self.versions.items():
            assert versions == sorted(set(versions)), f"the handler got {key} twice or out of order: {versions}"
        assert self.fulls() == self.first_fulls, self.replica.status().counters
