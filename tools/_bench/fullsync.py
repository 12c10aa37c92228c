"""Full sync of the whole routing table into a replica, compared with a plain fetch of the same rows by sqlite3."""

import gc
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _children import Children, Line
from _processes import free_port
from _routes import data

from _bench.measure import BenchError, Log, Row, Sizes, in_turns, row
from _bench.replicas import TIMING
from pubsub_lib import Replica, Settings, Store
from pubsub_lib.core.model import SyncAnswer, Want

DATA = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"
ROUTES = "rib-rrc00-20000111.jsonl.gz"
ALL_ROUTES = 452_018
REQUIRED = 0.4
LOAD = 5000
"""Routes of one transaction while the database is filled."""
PEER = "sqlite3, fetched into a dict"
ROWS = "SELECT table_name, object_key, version, value FROM pubsub_objects"


def run(folder: Path, sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """``folder`` holds the routes; without it, generated routes of the same shape are used, and a note reports it."""
    path = folder / ROUTES
    note = "" if path.is_file() else f"{folder} does not hold {ROUTES}: generated routes of the same shape were used"
    if note:
        log(note)
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as temporary:
        database = Path(temporary, "routes.db")
        routes = generated(sizes.routes or ALL_ROUTES) if note else data.read(path, sizes.routes)
        count = fill(database, routes, log)
        values = list(in_turns(rounds, lambda: count / ours(database), lambda: count / bare(database), log))
    return [row("sync", f"full sync of {count:,} routes, SQLite", "objects/s", PEER, values, "least", REQUIRED, note)]


def generated(count: int) -> Iterator[data.Route]:
    """Routes with keys, topics and values as long as the real ones."""
    for number in range(count):
        peer, prefix = f"192.65.184.{number % 5}", f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}.0/24"
        path = [3549 + number % 5, 701, 1239 + number % 500, 7018 + number % 300]
        yield data.Route(
            947_464_320, "route", f"{peer}|{prefix}", f"as{3549 + number % 5}", "set",
            {"origin": "IGP", "as_path": path, "next_hop": peer, "prefix": prefix, "peer_as": path[0]},
        )  # fmt: skip


def fill(database: Path, routes: Iterator[data.Route], log: Log) -> int:
    """Write the routes. Returns the number of objects in the database."""
    done = 0
    with Store(f"sqlite:///{database}") as store:
        for batch in data.batches(routes, LOAD):
            with store.transaction() as transaction:
                for route in batch:
                    transaction.set(route.table, route.key, route.value, topic=route.topic)
            done += len(batch)
            log(f"{done:,} routes loaded")
        return sum(head.count for head in store.topics().values())


def fetch(database: Path) -> Mapping[tuple[str, str], tuple[int, bytes]]:
    """The rows as a dict, read only with the standard library's driver."""
    connection = sqlite3.connect(database)
    try:
        rows = connection.execute(ROWS)
        return {(table, key): (version, value) for table, key, version, value in rows}
    finally:
        connection.close()


def bare(database: Path) -> float:
    """Seconds of the plain fetch, in a new process."""
    with Children() as children:
        return float(children.fork(bare_process, database).receive())


def bare_process(line: Line, database: Path) -> None:
    """The process of the peer."""
    begun = time.monotonic()
    state = fetch(database)
    line.send(time.monotonic() - begun)
    del state


class Timed:
    """A store that records the times of its syncs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.begun: list[float] = []

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """As the method of ``Store``."""
        self.begun.append(time.monotonic())
        return self._store.read_sync(wants)


def ours(database: Path) -> float:
    """Seconds from the request to the store until the replica is synced, in a new process."""
    with Children() as children:
        child = children.fork(sync_process, database, free_port())
        took = float(child.receive())
        child.receive()
        return took


def sync_process(line: Line, database: Path, port: int) -> None:
    """The replica of all topics, with all checks. There is no publisher, so it syncs after a short wait for a hello."""
    gc.collect()
    settings = Settings(
        store_url=f"sqlite:///{database}",
        driver="zmq_pubsub_driver",
        addresses=(f"tcp://127.0.0.1:{port}",),
        timing=type(TIMING)(max_idle_time=60.0, hello_wait=0.05, sync_jitter=0.0, sync_timeout=600.0),
        discovery_interval=0.0,
    )
    with Store(settings, create=False) as store:
        timed = Timed(store)
        with Replica(settings, store=timed) as replica:
            replica.wait_synced(600.0)
            line.send(time.monotonic() - timed.begun[0])
            state = {(each.table, each.key): (each.version, each.json) for each in replica.records()}
            if state != fetch(database) or len(timed.begun) != 1 or replica.status().faults.mismatches:
                raise BenchError(f"after {len(timed.begun)} syncs the replica's objects differ from the store's")
            line.send()
