"""The processes of ``tools/bench relays``: a service, two relays behind proxies, a writer, and replicas that measure.

The times of all commits are in memory that these processes share, so each replica can compare its staleness with the
truth. They are of the machine's monotonic clock.
"""

import multiprocessing
import statistics
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from _bench.measure import BenchError
from _children import Child, Children, Line, attached
from _processes import free_ports, poll

from pubsub_lib import Replica, Settings, Store, Timing, Worker
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Delta, SyncAnswer
from pubsub_lib.core.transitions import Trigger
from pubsub_lib.replica import engine
from pubsub_lib.replica.sync_reader import SyncReader, read_all
from pubsub_lib.testing.stream_proxy import StreamProxy

TOPICS: Final = ("t0", "t1")
TABLE: Final = "beat"
MAX_COMMITS: Final = 500_000
PATIENCE: Final = 120.0
SCALED: Final = (
    "max_idle_time", "message_delay_window", "hello_wait", "reading_age", "round_trip", "poll_interval",
    "connect_jitter", "sync_jitter", "sync_interval", "sync_backoff", "max_sync_backoff", "sync_timeout",
)  # fmt: skip
LOOK: Final = 0.02
"""Seconds between two looks of a replica at its staleness and its parent."""


def times(idle: float) -> dict[str, float]:
    """The default times, in proportion to this ``max_idle_time``: shorter rounds, and the same relations."""
    defaults = Timing()
    return {name: getattr(defaults, name) * idle / defaults.max_idle_time for name in SCALED}


def _lines(idle: float) -> str:
    return "".join(f"{name} = {value:g}\n" for name, value in times(idle).items())


class Truth:
    """When each transaction began and was committed, by number from 1; shared by forked processes."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.begun = context.RawArray("d", MAX_COMMITS)
        self.committed = context.RawArray("d", MAX_COMMITS)
        self.stop = context.RawValue("b", 0)


class Figures(msgspec.Struct, frozen=True):
    """What one replica measured since the last figures."""

    parents: Sequence[str]
    fulls: int
    """Of all its time, as ``deltas``: answered deltas with links, by topic, without the regular verifications."""
    deltas: dict[str, int]
    polling: bool
    worst: float
    """The largest staleness."""
    least: float
    """The least staleness beyond the truth; below 0: the replica claimed to be fresher than it was."""
    moved: float
    """When it left its parent last; 0: never."""
    p50: float
    """Median seconds from the begin of a transaction to the handler; 0 without one."""
    have: int = 0
    """All transactions up to this number, and perhaps more, were in the replica at the last look."""
    reads: int = 0
    """Syncs read from the database, of all its time."""


class Meter:
    """What a replica measures. The handler's thread, the clock and the order's thread use it."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._lock = threading.Lock()
        self._deltas: Counter[str] = Counter()
        self._parents: Sequence[str] = ()
        self._moved = 0.0
        self._have = self._reads = 0
        self._reset()

    def _reset(self) -> None:
        self._worst, self._least = 0.0, float("inf")
        self._took: list[float] = []

    def handled(self, event: Event) -> None:
        """The handler."""
        if event.new_value is not None:
            took = time.monotonic() - self._truth.begun[int(event.new_value)]
            with self._lock:
                self._took.append(took)

    def answered(self, job: StartSync, answer: SyncAnswer) -> None:
        """A sync was answered."""
        deltas = [topic for topic, part in answer.chains.items() if isinstance(part, Delta) and part.links]
        with self._lock:
            self._deltas.update(topic for topic in deltas if job.causes[topic] != Trigger.UNVERIFIED.value)

    def read_database(self) -> None:
        """The replica reads from the database."""
        with self._lock:
            self._reads += 1

    def look(self, replica: Replica) -> None:
        """Compare the staleness with the truth. It is read first: what is missing afterwards was missing then."""
        now = time.monotonic()
        staleness, parents = replica.status().staleness, replica.publishers
        have = {topic: int(replica.get(TABLE, topic) or 0) for topic in TOPICS}
        following = [number + len(TOPICS) if number else 1 + TOPICS.index(topic) for topic, number in have.items()]
        missing = [self._truth.committed[number] for number in following if self._truth.committed[number]]
        truth = max(0.0, now - min(missing, default=now))
        with self._lock:
            self._worst, self._least = max(self._worst, staleness), min(self._least, staleness - truth)
            self._have = min(following) - 1
            if parents != self._parents:
                self._parents, self._moved = parents, now

    def figures(self, replica: Replica) -> Figures:
        """The figures, which begin again."""
        status = replica.status()
        fulls = sum(status.counters.fulls.values())
        with self._lock:
            p50 = statistics.median(self._took) if self._took else 0.0
            made = Figures(
                tuple(replica.publishers), fulls, dict(self._deltas), status.polling, self._worst, self._least,
                self._moved, p50, self._have, self._reads,
            )  # fmt: skip
            self._reset()
        return made


def follow(line: Line, config: Path, truth: Truth) -> None:
    """A replica, which reports its figures whenever it is asked."""
    line.wait()
    meter = Meter(truth)

    def counted(reader: SyncReader, job: StartSync) -> SyncAnswer:
        answer = read_all(reader, job)
        meter.answered(job, answer)
        return answer

    engine.read_all = counted  # type: ignore[attr-defined]
    read: Callable[..., SyncAnswer] = Store.read_sync

    def noted(*arguments: Any) -> SyncAnswer:
        meter.read_database()
        return read(*arguments)

    Store.read_sync = noted  # type: ignore[method-assign,assignment]
    with Replica(Settings.from_file(config), TOPICS) as replica:
        replica.on(TABLE, meter.handled)
        replica.wait_synced(PATIENCE)
        closed = threading.Event()

        def look() -> None:
            while not closed.wait(LOOK):
                meter.look(replica)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            line.send(meter.figures(replica))
            while line.wait() != "end":
                line.send(meter.figures(replica))
        finally:
            closed.set()
            thread.join()
    line.send()


def write(line: Line, config: Path, truth: Truth, rate: float) -> None:
    """Commit ``rate`` transactions a second, one topic after the other, until it is stopped."""
    settings = Settings.from_file(config)
    with Store(settings, origin=settings.service_name) as store, Worker(settings, store):
        line.send()
        line.wait()
        begun = time.monotonic()
        for number in range(1, MAX_COMMITS - len(TOPICS)):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            if truth.stop.value:
                break
            topic = TOPICS[(number - 1) % len(TOPICS)]
            truth.begun[number] = time.monotonic()
            with store.transaction() as tx:
                tx.set(TABLE, topic, number, topic=topic)
            truth.committed[number] = time.monotonic()
    line.send()


class Service:
    """A publisher service, or a relay, that can be killed and started again at the same addresses."""

    def __init__(self, folder: Path, name: str, idle: float, children: Children, role: str = "origin") -> None:
        self.name = name
        self._children = children
        self.port, self.http = free_ports(2)
        self.address, self.url = f"tcp://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.http}"
        self.config = folder / f"{name}.conf"
        self._log = folder / f"{name}.log"
        self._role, self._idle, self._folder = role, idle, folder
        self.child: Child | None = None

    def configure(self, more: str = "") -> None:
        """Write its file."""
        self.config.write_text(
            f"[pubsub]\nstore_url = sqlite:///{self._folder}/net.db\nenable_pub_sub = true\n"
            f"service_name = {self.name}\npublisher_bind_address = 127.0.0.1\npublisher_port = {self.port}\n"
            f"publisher_multiproc_socket = {self._folder}/{self.name}/hop\n{_lines(self._idle)}{more}"
            f"[publisher_service]\nrole = {self._role}\nserve_syncs = true\nmetrics_port = {self.http}\nlease = 5\n"
            "max_syncs = 24\n"
        )

    def start(self) -> None:
        """Start it, and wait until it is ready. Raises BenchError."""
        command = attached("pubsub_lib.service", "--config-file", self.config, "--log-level", "error")
        self.child = self._children.add(lambda: Child(self.name, command, log=self._log))
        if not poll(self.is_ready, PATIENCE):
            raise BenchError(f"{self.name} is not ready after {PATIENCE:.0f} s: {self.child.last_words()}")

    def is_ready(self) -> bool:
        """Whether its endpoint reports ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Relay(Service):
    """A relay behind two proxies: to the publisher above, and to its sync channel."""

    def __init__(self, folder: Path, name: str, idle: float, children: Children, above: Service) -> None:
        super().__init__(folder, name, idle, children, "relay")
        self._above = above
        self._proxies: list[StreamProxy] = []

    def connect(self) -> None:
        """Start the proxies, which have threads, and write the file."""
        targets = self._above.address, f"tcp://127.0.0.1:{self._above.http}"
        self._proxies = [StreamProxy("tcp://127.0.0.1:0", target) for target in targets]
        publisher, channel = (proxy.address for proxy in self._proxies)
        url = channel.replace("tcp://", "http://")
        self.configure(f"topics = {', '.join(TOPICS)}\nparents = {publisher}\nsync_url = {url}\n")

    def cut(self) -> None:
        """Cut it from what is above, in both directions."""
        for proxy in self._proxies:
            proxy.cut()

    def restore(self) -> None:
        """End the cut."""
        for proxy in self._proxies:
            proxy.restore()

    def close(self) -> None:
        """End the proxies."""
        for proxy in self._proxies:
            proxy.close()


def replica_file(folder: Path, name: str, idle: float, lines: str) -> Path:
    """The file of a replica."""
    path = folder / f"{name}.conf"
    path.write_text(f"[pubsub]\nenable_pub_sub = true\n{_lines(idle)}{lines}")
    return path


def figures_of(replicas: Sequence[Any]) -> list[Figures]:
    """The figures of forked replicas."""
    for replica in replicas:
        replica.send("figures")
    return [replica.receive(PATIENCE) for replica in replicas]


def joined(figures: Sequence[Figures]) -> Figures:
    """The last figures of one replica, with the extremes of all."""
    worst, least = max(each.worst for each in figures), min(each.least for each in figures)
    return msgspec.structs.replace(figures[-1], worst=worst, least=least)
