#!/usr/bin/env python3
"""Measures the cost of a commit while the transport refuses hellos.

``tools/commit_cost.py [--topics N] [--commits N] [--send-wait S]``, in the environment that ``tools/test`` sets up.
One program writes to a SQLite database of N idle topics and publishes by itself, through a stub for the transport that
accepts links at once. Half of the commits are made while no hello is sent. During the other half, a thread requests
hellos about all topics without pause, and the stub refuses each hello after S seconds. Exit status 1: this adds 5 ms
or more to the median of a commit.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pubsub_lib import Publisher, Settings, Store
from pubsub_lib.api import OnConnected, OnHelloRequest
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.errors import TransportError

LIMIT = 0.005
BATCH = 5000


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


def main(arguments: argparse.Namespace) -> int:
    """Measure once and print one line per figure."""
    topics = tuple(f"topic-{number}" for number in range(arguments.topics))
    with tempfile.TemporaryDirectory(prefix="pubsub-commit-") as folder:
        settings = Settings(store_url=f"sqlite:///{folder}/commits.db", service_name="commit-cost")
        driver = Refusing(arguments.send_wait)
        with Store(settings) as store:
            fill(store, topics)
            with Publisher(settings, store, driver) as publisher:
                wait_for_start_hello(publisher)
                calm = [commit(store, topics, number) for number in range(arguments.commits)]
                with refusing(driver, topics):
                    refused = [commit(store, topics, number) for number in range(arguments.commits)]
                print(f"topics {arguments.topics}, commits {arguments.commits}, refused hellos {driver.refused}")
    added = statistics.median(refused) - statistics.median(calm)
    print(f"a commit, no hello is sent    {in_words(calm)}")
    print(f"a commit, hellos are refused  {in_words(refused)}")
    print(f"added                         {1000 * added:.2f} ms at the median, limit {1000 * LIMIT:.0f} ms")
    return 0 if added < LIMIT else 1


def in_words(seconds: list[float]) -> str:
    """The median and the maximum."""
    return f"{1000 * statistics.median(seconds):.2f} ms at the median, {1000 * max(seconds):.1f} ms at most"


def fill(store: Store, topics: tuple[str, ...]) -> None:
    """One object in each topic."""
    for start in range(0, len(topics), BATCH):
        with store.transaction() as tx:
            for topic in topics[start : start + BATCH]:
                tx.set("t", topic, 0, topic=topic)


def wait_for_start_hello(publisher: Publisher) -> None:
    """Wait for the start hello: afterwards the heads are read, and hello requests are answered at once."""
    while publisher.counters()["hellos"] == 0:
        time.sleep(0.01)


@contextmanager
def refusing(driver: Refusing, topics: tuple[str, ...]) -> Iterator[None]:
    """During the block, hellos are refused without pause."""
    driver.refuses.set()
    asking = threading.Thread(target=driver.ask, args=(topics,))
    asking.start()
    try:
        driver.hello_in_flight.wait()
        yield
    finally:
        driver.refuses.clear()
        asking.join()


def commit(store: Store, topics: tuple[str, ...], number: int) -> float:
    """Commit one change. Returns the seconds."""
    topic = topics[number % len(topics)]
    began = time.monotonic()
    with store.transaction() as tx:
        tx.set("t", topic, began, topic=topic)
    return time.monotonic() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--send-wait", type=float, default=0.5)
    sys.exit(main(parser.parse_args()))
