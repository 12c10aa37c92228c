"""Changes objects without the library, and measures how soon they are repaired and how many objects that reads.

``tools/bench rot``: a value, a version and a whole object are damaged in a replica's memory and in the database
(SQLite), idle and while a writer writes. Prints a line for each: seconds until the repair, and the objects that it
read. Exit code 1: not within the given time, or more than 1 % of the objects read.
"""

import argparse
import itertools
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from _command_line import Parser, positive
from sqlalchemy import and_, create_engine, delete, update

from _measurements.command import Finding, Findings
from pubsub_lib import Replica, Settings, Store
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.model import Full, Point, SyncAnswer, Want
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.timing import Timing
from pubsub_lib.service.service import PublisherService
from pubsub_lib.store import repair, schema
from pubsub_lib.store.verbs import Stored

TOPIC, TABLE = "tenant", "port"
KINDS: Final = ("value", "version", "object")
BATCH = 5000
SHARE: Final = 0.01
"""Maximum share of the objects that a repair may read."""
PAUSE: Final = 0.005
"""Seconds between two transactions of the writer."""


class Figure(NamedTuple):
    """The repair of one damaged object."""

    where: str
    what: str
    how: str
    seconds: float
    read: int


class Reader:
    """The store of the replica; counts the objects that the replica reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = 0

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """As the store's method."""
        answer = self._store.read_sync(wants)
        for part in answer.chains.values():
            if isinstance(part, Full):
                self.read += sum(len(each.records) + len(each.changes) for each in part.topics.values())
        return answer

    def holds(self, topic: str, points: Sequence[Point]) -> Sequence[bool | None]:
        """As the store's method."""
        return self._store.holds(topic, points)


class Bench:
    """A service, a replica and a writer in this process."""

    def __init__(self, store: Store, reader: Reader, replica: Replica, repairs: list[repair.Repaired]) -> None:
        self.store = store
        self.reader = reader
        self.replica = replica
        self.repairs = repairs

    def rot_memory(self, kind: str, key: str) -> None:
        """Damage an object in the replica's memory."""

        def damage(state: ReplicaState) -> None:
            objects = state.cache._topics[TOPIC].tables[TABLE]
            if kind == "value":
                objects[key].value = b'"rotten"'
            elif kind == "version":
                objects[key].version += 10**9
            else:
                del objects[key], state.cache._merged.shown[TABLE][key]

        self.replica._engine.read(damage)

    def rot_database(self, url: str, kind: str, key: str) -> None:
        """Damage an object in the database, on a separate connection."""
        objects = schema.objects
        row = and_(objects.c.table_name == TABLE, objects.c.object_key == key)
        values: dict[str, dict[str, Any]] = {
            "value": {"value": b'"rotten"'},
            "version": {"version": objects.c.version + 10**9},
        }
        engine = create_engine(url, connect_args={"timeout": 30})
        with engine.begin() as connection:
            if kind in values:
                connection.execute(update(objects).where(row).values(values[kind]))
            else:
                connection.execute(delete(objects).where(row))
        engine.dispose()

    def in_memory(self, right: Stored) -> bool:
        """Whether the replica holds the right object."""
        shown = self.replica._engine.read(lambda state: state.cache.record(right.table, right.key))
        return shown is not None and (shown.version, shown.value) == (right.version, right.value)

    def in_database(self, right: Stored) -> bool:
        """Whether the database holds the right object."""
        return self.store.get_record(right.table, right.key) == right

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run a writer of other objects of the topic during the block."""
        end = threading.Event()

        def write() -> None:
            for number in itertools.count():
                if end.wait(PAUSE):
                    return
                with self.store.transaction() as tx:
                    tx.set(TABLE, f"busy-{number % 50}", {"n": number, "run": secrets.token_hex(4)}, topic=TOPIC)

        thread = threading.Thread(target=write, name="writer")
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


@contextmanager
def bench(folder: str, objects: int, within: float) -> Iterator[Bench]:
    """A service and a synced replica, with this number of objects."""
    url = f"sqlite:///{folder}/rot.db"
    timing = Timing(recount_time=within, sync_interval=0.2, sync_jitter=0.05, sync_backoff=0.2)
    settings = Settings(
        store_url=url, driver="memory", service_name="rot", timing=timing, driver_options={"bus": secrets.token_hex(8)}
    )
    prompt = ServiceSettings(recount_time=within, metrics_port=0, grace=0.001, follow_interval=0.005)
    service = PublisherService(settings, prompt)  # the service sends at once, as with workers
    repairs: list[repair.Repaired] = []
    repairing = service._store.repair

    def noted(topic: str, suspects: Sequence[tuple[str, str]] = ()) -> repair.Repaired:
        repairs.append(repairing(topic, suspects))
        return repairs[-1]

    service._store.repair = noted  # type: ignore[method-assign,assignment]
    with Store(settings) as store:
        fill(store, objects)
        reader = Reader(store)
        with service, Replica(settings, [TOPIC], store=reader) as replica:
            replica.wait_synced(120.0)
            yield Bench(store, reader, replica, repairs)


def fill(store: Store, objects: int) -> None:
    """Write the objects."""
    for first in range(0, objects, BATCH):
        with store.transaction() as tx:
            for number in range(first, min(first + BATCH, objects)):
                tx.set(TABLE, f"p{number}", {"number": number}, topic=TOPIC)


def wait(done: Callable[[], bool], limit: float) -> float:
    """Seconds until ``done`` returns True; infinite when it does not within the limit."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > limit:
            return float("inf")
        time.sleep(0.01)
    return time.monotonic() - began


def figures(
    folder: str, objects: int, within: float, rounds: int = 1, limit: float | None = None
) -> Iterator[Figure]:
    """Each kind of damage in both places, idle and while a writer writes. ``limit``: how many seconds to wait for each
    repair (twice ``within``).
    """
    limit = 2 * within if limit is None else limit
    keys = (f"p{number}" for number in itertools.count(7, 31))
    with bench(folder, objects, within) as all_of_it:
        url = f"sqlite:///{folder}/rot.db"
        for _ in range(rounds):
            for what in KINDS:
                yield from one(all_of_it, url, what, "idle", next(keys), limit)
            with all_of_it.writing():
                for what in KINDS:
                    yield from one(all_of_it, url, what, "writing", next(keys), limit)


def one(all_of_it: Bench, url: str, what: str, how: str, key: str, limit: float) -> Iterator[Figure]:
    """Damage one object in memory, then in the database."""
    right = all_of_it.store.get_record(TABLE, key)
    assert right is not None
    before = all_of_it.reader.read
    all_of_it.rot_memory(what, key)
    seconds = wait(lambda: all_of_it.in_memory(right), limit)
    yield Figure("memory", what, how, seconds, all_of_it.reader.read - before)
    done = len(all_of_it.repairs)
    all_of_it.rot_database(url, what, key)
    seconds = wait(lambda: all_of_it.in_database(right), limit)
    wait(lambda: len(all_of_it.repairs) > done, 5.0)
    yield Figure("database", what, how, seconds, sum(each.read for each in all_of_it.repairs[done:]))


def within_bounds(figure: Figure, objects: int, within: float) -> bool:
    """Whether the object was repaired in time, with few objects read."""
    return figure.seconds <= within and figure.read <= SHARE * objects


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--objects", type=positive, default=20_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--within", type=float, default=20.0, metavar="S",
        help="recount_time of replica and service, in seconds (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=positive, default=1, metavar="N", help="(default: %(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each damage."""
    with tempfile.TemporaryDirectory(prefix="pubsub-rot-") as folder:
        for each in figures(folder, options.objects, options.within, options.rounds):
            good = within_bounds(each, options.objects, options.within)
            words = (
                f"{each.where:8} {each.what:7} {each.how:7} repaired after {each.seconds:6.2f} s "
                f"(at most {options.within:g}), {each.read} of {options.objects} objects read"
                f"{'' if good else '  OUT OF BOUNDS'}"
            )
            name = f"{each.where}, {each.what}, {each.how}"
            yield Finding(name, words, {"seconds": each.seconds, "read": each.read, "objects": options.objects}, good)
