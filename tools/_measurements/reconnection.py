"""Measures how soon after a reconnection a replica has a change that was lost before, and whether start hellos arrive.

``tools/bench reconnection``: real ZeroMQ over loopback, a publisher service in a separate process, SQLite, and
``max_idle_time`` 20. The replica connects through a proxy that delays bytes by ``--delay`` in each direction, so that
round trips are visible. Prints the medians and the bound: three round trips (measured: a hello request and its reply)
and the jitters. Exit code 1: a median is over its bound, or a start hello did not arrive.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from _bench.measure import BenchError
from _children import Child, Children, attached
from _command_line import Parser, positive
from _processes import free_port

from _measurements.command import Finding, Findings
from pubsub_lib import Publisher, Replica, Settings, Store, Timing, contract, loader
from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.store.links import Commit
from pubsub_lib.testing.forwarding import ForwardingSubscriber
from pubsub_lib.testing.stream_proxy import StreamProxy

DRIVER = "zmq_pubsub_driver"
IDLE = 20.0
TOPICS = ("t0", "t1", "t2")
PATIENCE = 60.0
ROUND_TRIPS = 3


class Times:
    """Times of one kind of event. Any thread may note one or wait for the next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._moments: list[float] = []

    def note(self) -> None:
        """Note the current time."""
        with self._changed:
            self._moments.append(time.monotonic())
            self._changed.notify_all()

    @property
    def count(self) -> int:
        """The number of noted times."""
        return len(self._moments)

    def after(self, count: int, what: str) -> float:
        """The time after the first ``count`` ones. Raises BenchError when it is not noted in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._moments) > count, PATIENCE):
                raise BenchError(f"timeout after {PATIENCE:g} s: {what}")
            return self._moments[count]


class Observed(ForwardingSubscriber):
    """A driver's subscriber that notes its connections."""

    def __init__(self, inner: Subscriber) -> None:
        super().__init__(inner)
        self.connected = Times()

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """As the driver's method, with a note before each ``on_connected``."""

        def connected() -> None:
            self.connected.note()
            on_connected()

        super().initialize(on_envelope, connected)


class Service:
    """The publisher service, which can be killed and started again with the same port."""

    def __init__(self, folder: str, store_url: str, children: Children) -> None:
        port = free_port()
        self._children = children
        self.address = f"tcp://127.0.0.1:{port}"
        self._config = Path(folder) / "net.conf"
        self._config.write_text(
            f"[pubsub]\nstore_url = {store_url}\nenable_pub_sub = true\nservice_name = api-1\n"
            f"publisher_bind_address = 127.0.0.1\npublisher_port = {port}\nmax_idle_time = {IDLE}\n"
            f"publisher_multiproc_socket = {folder}/hop/socket\n"
            "[publisher_service]\nmetrics_port = 0\nlease = 2\nfollow_interval = 0.05\ngrace = 0.3\n"
        )
        self._process: Child | None = None

    def start(self) -> None:
        """Start it; does not wait for its socket."""
        command = attached("pubsub_lib.service", "--config-file", self._config, "--log-level", "error")
        self._process = self._children.start("service", command)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process is not None:
            self._process.kill()


class Scenario:
    """A replica behind a proxy, the service, and a store into which one change at a time is written."""

    def __init__(self, folder: str, delay: float, jitter: float, stack: ExitStack) -> None:
        url = f"sqlite:///{folder}/net.db"
        self.timing = Timing(max_idle_time=IDLE, connect_jitter=jitter, sync_jitter=jitter)
        self.service = Service(folder, url, stack.enter_context(Children()))
        self.proxy = StreamProxy("tcp://127.0.0.1:0", self.service.address, delay)
        stack.callback(self.proxy.close)
        self.settings = Settings(
            store_url=url, driver=DRIVER, addresses=(self.proxy.address,), timing=self.timing, discovery_interval=0.0
        )
        self.store = stack.enter_context(Store(url))
        self._number = 0
        self.write()
        self.service.start()
        self.subscriber = Observed(_subscriber(self.settings))
        self.arrived = Times()
        self.replica = Replica(self.settings, TOPICS, subscriber=self.subscriber)
        self.replica.on("t", lambda change: self.arrived.note())
        stack.enter_context(self.replica)
        self.subscriber.connected.after(0, "the replica is connected")
        self.replica.wait_synced(PATIENCE)

    def write(self) -> Commit:
        """Commit one change, which no worker hands over."""
        self._number += 1
        topic = TOPICS[self._number % len(TOPICS)]
        with self.store.transaction() as tx:
            tx.set("t", topic, self._number, topic=topic)
        assert tx.commit is not None
        return tx.commit

    def settle(self) -> None:
        """Wait until a change arrives by message: the replica is connected and synced."""
        self.replica.wait_handled(self.write(), PATIENCE)

    def repaired(self, break_and_restore: Callable[[], None]) -> float:
        """Seconds from the reconnection to the arrival of the change that was lost before it."""
        self.settle()
        connected, arrived = self.subscriber.connected.count, self.arrived.count
        break_and_restore()
        since = self.subscriber.connected.after(connected, "the replica is connected again")
        return self.arrived.after(arrived, "the change has arrived") - since

    def cut(self, seconds: float) -> None:
        """Cut the network; the change that the service publishes is lost."""
        self.proxy.cut()
        self.write()
        time.sleep(seconds)
        self.proxy.restore()

    def restart(self) -> None:
        """Kill the service; the change is committed before the service runs again."""
        self.service.kill()
        self.write()
        self.service.start()

    def round_trip(self) -> float:
        """Seconds from a hello request to its reply, the median of a few."""
        found = []
        answered = Times()
        subscriber = Observed(_subscriber(self.settings))
        subscriber.initialize(lambda envelope: answered.note() if _is_reply(envelope) else None, lambda: None)
        try:
            subscriber.daemonize()
            subscriber.connected.after(0, "the subscriber is connected")
            for count in range(7):
                asked = time.monotonic()
                subscriber.request_hello(uuid.uuid4().hex, TOPICS)
                found.append(answered.after(count, "the hello reply has arrived") - asked)
        finally:
            subscriber.close()
        return statistics.median(found)


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--count", type=positive, default=20, metavar="N", help="repetitions of each scenario (20)")
    parser.add_argument("--cut", type=float, default=2.0, metavar="S", help="seconds of the network's cut (2)")
    parser.add_argument("--delay", type=float, default=0.05, metavar="S", help="delay of bytes in one direction (0.05)")
    parser.add_argument("--jitter", type=float, default=0.5, metavar="S", help="connect_jitter and sync_jitter (0.5)")
    parser.add_argument(
        "--room", type=float, default=0.0, metavar="S", help="added to the bound, for a busy machine (0)"
    )
    parser.add_argument("--only", choices=("cut", "restart", "hello"), default="", help="run only this scenario")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each scenario."""
    words = f"max_idle_time {IDLE:g} s, delay {options.delay:g} s in each direction"
    yield Finding("network", f"load {os.getloadavg()[0]:.1f}, {words}", {"delay_seconds": options.delay})
    if options.only != "hello":
        with tempfile.TemporaryDirectory(prefix="pubsub-reconnection-") as folder, ExitStack() as stack:
            yield from repairs(Scenario(folder, options.delay, options.jitter, stack), options)
    if options.only in ("", "hello"):
        with tempfile.TemporaryDirectory(prefix="pubsub-reconnection-") as folder:
            yield start_hellos(folder, options.count)


def repairs(on: Scenario, options: argparse.Namespace) -> Findings:
    """The round trip with the bound, and the repair after each kind of break."""
    on.settle()
    trip = on.round_trip()
    bound = ROUND_TRIPS * trip + on.timing.connect_jitter + on.timing.sync_jitter + options.room
    words = f"round trip          {trip:.3f} s; bound {bound:.3f} s (jitters {2 * options.jitter:g} s)"
    yield Finding("round trip", words, {"seconds": trip, "bound_seconds": bound})
    breaks = {f"cut of {options.cut:g} s": lambda: on.cut(options.cut), "restarted service": on.restart}
    for what, break_and_restore in breaks.items():
        if not options.only or what.startswith(options.only):
            yield repair(what, bound, [on.repaired(break_and_restore) for _ in range(options.count)])


def repair(what: str, bound: float, seconds: list[float]) -> Finding:
    """Whether the median is within the bound."""
    median = statistics.median(seconds)
    words = (
        f"{what:<19} repaired {median:.3f} s after the reconnection (median of {len(seconds)}; "
        f"{min(seconds):.3f} to {max(seconds):.3f}): {'within' if median <= bound else 'OVER'} {bound:.3f} s"
    )
    return Finding(what, words, {"median_seconds": median, "seconds": seconds}, median <= bound)


def start_hellos(folder: str, count: int) -> Finding:
    """How many hellos at a publisher's start reached a listener that was waiting for the publisher."""
    url = f"sqlite:///{folder}/hello.db"
    seconds: list[float] = []
    with Store(url) as store:
        with store.transaction() as tx:
            for topic in TOPICS:
                tx.set("t", topic, 1, topic=topic)
        for _ in range(count):
            seconds += start_hello(url, store)
    latest = max(seconds, default=0.0)
    words = f"hello at the start  received by {len(seconds)} of {count}, at most {latest:.3f} s after the connection"
    return Finding(
        "start hello", words, {"received": len(seconds), "of": count, "seconds": seconds}, len(seconds) == count
    )


def start_hello(url: str, store: Store) -> list[float]:
    """Start a publisher. Returns the seconds from the listener's connection to the hello; [] without a hello."""
    address = f"tcp://127.0.0.1:{free_port()}"
    settings = Settings(
        store_url=url, driver=DRIVER, service_name="api-1", addresses=(address,), bind_address=address,
        timing=Timing(max_idle_time=IDLE), discovery_interval=0.0,
    )  # fmt: skip
    head = store.read_heads(()).store
    received = threading.Event()

    def take(envelope: Envelope) -> None:
        hello = envelope.hello
        if hello is not None and not hello.nonce and hello.store == head:
            received.set()

    listener = Observed(_subscriber(settings))
    listener.initialize(take, lambda: None)
    listener.register_topic(TOPICS[0])
    try:
        listener.daemonize()
        with Publisher(settings, store):
            since = listener.connected.after(0, "the listener is connected")
            return [max(0.0, time.monotonic() - since)] if received.wait(IDLE / 4) else []
    finally:
        listener.close()


def _subscriber(settings: Settings) -> Subscriber:
    return contract.subscriber(loader.load(settings.driver, settings.needs()), settings.for_driver())


def _is_reply(envelope: Envelope) -> bool:
    return envelope.hello is not None and bool(envelope.hello.nonce)
