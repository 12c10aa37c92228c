"""Measures the cost of a commit while the transport refuses hellos: ``tools/bench commit-cost``.

One program writes to a SQLite database of N idle topics and publishes by itself, through a stub for the transport that
accepts links at once. Half of the commits are made while no hello is sent. During the other half, a thread requests
hellos about all topics without pause, and the stub refuses each hello after S seconds. Exit code 1: this adds 5 ms
or more to the median of a commit.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from _command_line import Parser, positive

from _measurements.command import Finding, Findings
from _measurements.topics import commit, fill, names
from pubsub_lib import Publisher, Settings, Store
from pubsub_lib.api import OnConnected, OnHelloRequest
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.errors import TransportError

LIMIT = 0.005


class Refusing(DriverPublisher):
    """Accepts links and hellos. While ``refuses`` is set, every hello waits and is refused."""

    def __init__(self, send_wait: float) -> None:
        self._send_wait = send_wait
        self._on_ask: OnHelloRequest = lambda ask: None
        self.refuses = threading.Event()
        self.refused = 0
        self.hello_in_flight = threading.Event()

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Keep the callback for hello requests."""
        self._on_ask = on_hello_request

    def send_event(self, envelope: Envelope) -> None:
        """Raise TransportError for a hello while ``refuses`` is set."""
        if envelope.hello is None or not self.refuses.is_set():
            return
        self.hello_in_flight.set()
        time.sleep(self._send_wait)
        self.refused += 1
        raise TransportError("the stub refuses hellos")

    def ask(self, topics: tuple[str, ...]) -> None:
        """Request hellos about these topics while ``refuses`` is set. Call it on a separate thread, as drivers do."""
        number = 0
        while self.refuses.is_set():
            number += 1
            self._on_ask(HelloRequest(f"n{number}", topics))

    def counters(self) -> Mapping[str, int]:
        """No counters."""
        return {}

    def close(self) -> None:
        """Stop refusing hellos."""
        self.refuses.clear()


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--topics", type=positive, default=1000, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--commits", type=positive, default=200, metavar="N", help="of each half (default: %(default)s)"
    )
    parser.add_argument(
        "--send-wait", type=float, default=0.5, metavar="S", help="seconds until a hello is refused (%(default)s)"
    )


def measure(options: argparse.Namespace) -> Findings:
    """Measure once."""
    topics = names(options.topics)
    with tempfile.TemporaryDirectory(prefix="pubsub-commit-") as folder:
        settings = Settings(store_url=f"sqlite:///{folder}/commits.db", service_name="commit-cost")
        driver = Refusing(options.send_wait)
        with Store(settings) as store:
            fill(store, topics)
            with Publisher(settings, store, driver) as publisher:
                wait_for_start_hello(publisher)
                calm = [commit(store, topics, number, time.monotonic()) for number in range(options.commits)]
                with refusing(driver, topics):
                    refused = [commit(store, topics, number, time.monotonic()) for number in range(options.commits)]
    figures = {"topics": options.topics, "commits": options.commits, "refused_hellos": driver.refused}
    words = f"topics {options.topics}, commits {options.commits}, refused hellos {driver.refused}"
    yield Finding("commits", words, figures)
    yield of_commits("calm", "a commit, no hello is sent", calm)
    yield of_commits("refused", "a commit, hellos are refused", refused)
    added = statistics.median(refused) - statistics.median(calm)
    words = f"added                         {1000 * added:.2f} ms at the median, limit {1000 * LIMIT:.0f} ms"
    yield Finding("added", words, {"median_seconds": added, "limit_seconds": LIMIT}, added < LIMIT)


def of_commits(name: str, title: str, seconds: Sequence[float]) -> Finding:
    """The median and the maximum."""
    median, most = statistics.median(seconds), max(seconds)
    words = f"{title:<30}{1000 * median:.2f} ms at the median, {1000 * most:.1f} ms at most"
    return Finding(name, words, {"median_seconds": median, "max_seconds": most})


def wait_for_start_hello(publisher: Publisher) -> None:
    """Wait for the start hello: afterwards the heads are read, and hello requests are answered at once."""
    while publisher.counters()["hellos"] == 0:
        time.sleep(0.01)


@contextmanager
def refusing(driver: Refusing, topics: Sequence[str]) -> Iterator[None]:
    """During the block, hellos are refused without pause."""
    driver.refuses.set()
    asking = threading.Thread(target=driver.ask, args=(tuple(topics),))
    asking.start()
    try:
        driver.hello_in_flight.wait()
        yield
    finally:
        driver.refuses.clear()
        asking.join()
