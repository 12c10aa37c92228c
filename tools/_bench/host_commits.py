"""Commits of one change by 8 processes through the publisher-service, which commits for all (``group_commit = host``).

The peer is the bare driver with the same counter row, in 8 processes with one connection each. Transactions per second.
"""

import itertools
import random
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import _processes
from _children import Children, Line
from _routes.service import Service

from _bench import commits
from _bench.commits import KEYS, PEER, WRITERS, Commit
from _bench.measure import BenchError, Log, Row, in_turns, row
from pubsub_lib import Settings, Store

REQUIRED: Final = {"PostgreSQL": 2.0}
START: Final = 30.0
"""Maximum number of seconds for the start of the service."""
CONFIGURATION: Final = """[pubsub]
store_url = {url}
enable_pub_sub = true
service_name = bench
publisher_bind_address = 127.0.0.1
publisher_port = {port}
publisher_multiproc_socket = {folder}/hop/socket
group_commit = host
[publisher_service]
metrics_port = {metrics}
"""


def measured(name: str, url: str, transactions: int, rounds: int, log: Log) -> Row:
    """The row of one database."""
    each = max(1, transactions // WRITERS)
    title = f"{name}, 1 change, {WRITERS} processes through the service"
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder:
        pairs = in_turns(
            rounds,
            lambda: through_the_service(url, Path(folder), each),
            lambda: together(bare, url, each),
            lambda text: log(f"{title}, {text}"),
        )
        return row(f"store-{name.lower()}-host", title, "tx/s", PEER, list(pairs), "least", REQUIRED.get(name))


def through_the_service(url: str, folder: Path, each: int) -> float:
    """Transactions per second by our workers. Raises BenchError when they did not use the service."""
    configuration, (port, metrics) = folder / "bench.conf", _processes.free_ports(2)
    configuration.write_text(CONFIGURATION.format(url=url, port=port, metrics=metrics, folder=folder))
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as own, Service(configuration, Path(own)) as service:
        service.start()
        if not _processes.poll(service.ready, START):
            raise BenchError(f"the publisher-service was not ready within {START:.0f} s")
        rate = together(ours, str(configuration), each)
        check_used(metrics, WRITERS * (each + 1))
        return rate


def check_used(metrics: int, transactions: int) -> None:
    """Raises BenchError when the service with this metrics port committed fewer than this number of transactions."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=START) as answer:
        lines = answer.read().decode().splitlines()
    taken = next(float(line.split()[-1]) for line in lines if 'commits_total{what="requests"}' in line)
    if taken < transactions:
        raise BenchError(f"only {taken:.0f} of {transactions} transactions went through the service")


def together(work: Callable[[Line, str, int, int], None], database: str, each: int) -> float:
    """Transactions per second of all processes, from the first one's begin to the last one's end."""
    with Children() as children:
        workers = [children.fork(work, database, number, each) for number in range(WRITERS)]
        for worker in workers:
            worker.receive()
        begun = time.monotonic()
        for worker in workers:
            worker.send()
        for worker in workers:
            worker.receive()
        return WRITERS * each / (time.monotonic() - begun)


def ours(line: Line, configuration: str, number: int, each: int) -> None:
    """A process that commits by the service of this configuration."""
    with Store(Settings.from_file(configuration)) as store:
        _write(line, commits.writer_of(store, number), each)


def bare(line: Line, url: str, number: int, each: int) -> None:
    """A process with a connection of the bare driver."""
    with commits.bare(url) as writer:
        _write(line, writer(number), each)


def _write(line: Line, commit: Commit, each: int) -> None:
    rng = random.Random(each)
    plan: Sequence[int] = [rng.randrange(KEYS) for _ in range(each)]
    commit([0], time.monotonic_ns())  # connects, and prepares the statements
    line.send()
    line.wait()
    for key, stamp in zip(plan, itertools.count(time.monotonic_ns()), strict=False):
        commit([key], stamp)
    line.send()
