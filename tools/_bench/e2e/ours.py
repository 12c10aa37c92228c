"""This library: one writer publishes by itself; several writers are set up as the operating guide sets up a host, with
a publisher-service and workers. Watchers are replicas. With ``host`` the service also commits for the workers
(``group_commit = host``).

The database is SQLite in a file, or PostgreSQL; all options have their defaults, but that one writer has
``pub_sub_use_multiproc = false``.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import _processes
from _children import Children
from _routes.service import Service

from _bench import host_commits
from _bench.e2e.plan import PROBE, Cell, Changes
from _bench.e2e.seen import Seen
from _bench.e2e.side import Facts, Put
from _bench.measure import BenchError
from pubsub_lib import Replica, Settings, Store, open_publisher
from pubsub_lib.core.events import Event

TABLE = "object"
START = 30.0
"""Maximum number of seconds for the start of the service and of a replica."""
LOOK = 0.01
CONFIGURATION = """[pubsub]
store_url = {url}
enable_pub_sub = true
service_name = bench
publisher_bind_address = 127.0.0.1
publisher_port = {port}
publisher_multiproc_socket = {folder}/hop/socket
pub_sub_use_multiproc = {multiproc}
group_commit = {group_commit}
[publisher_service]
metrics_port = {metrics}
"""


class OursSession:
    """Workers and replicas of one configuration file. Each writer has its own topic."""

    def __init__(self, configuration: Path, cell: Cell) -> None:
        self._configuration = configuration
        self._cell = cell

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A store with a worker, or with a publisher of its own."""
        settings = Settings.from_file(self._configuration)
        with Store(settings) as store, open_publisher(settings, store):

            def put(changes: Changes) -> None:
                with store.transaction() as tx:
                    for key, value in changes:
                        tx.set(TABLE, key, value, topic=topic(number))

            yield put

    def watch(self, seen: Seen) -> None:
        """A replica of all topics with one handler, and the comparison of its contents at the end."""
        topics = [topic(number) for number in range(self._cell.writers)]
        with Replica(Settings.from_file(self._configuration), topics=topics) as replica:

            def handler(change: Event) -> None:
                seen.change(change.key, change.new)

            replica.on(TABLE, handler)
            replica.wait_synced(START)
            # A hello reply proves that the subscription has arrived.
            if not _processes.poll(lambda: bool(replica.status().driver["received"]), START):
                raise BenchError("the replica received no hello from a publisher")
            seen.connected()
            seen.complete.wait()
            compare({each.key: each.value["n"] for each in replica.records() if each.key != PROBE}, self._cell)


def topic(writer: int) -> str:
    """The topic of a writer's objects."""
    return f"tenant-{writer}"


def compare(found: Mapping[str, int], cell: Cell) -> None:
    """Raises BenchError when a replica's contents are not every key's last value."""
    if found != cell.expected():
        raise BenchError(
            f"a replica ended with {len(found)} objects that differ from the {len(cell.expected())} expected"
        )


class Ours:
    """The side. ``new_url``: makes the URL of an empty database, in the given folder with SQLite. ``host``: the service
    commits for all writers.
    """

    def __init__(self, facts: Facts, new_url: Callable[[Path], str], *, host: bool = False) -> None:
        self.facts = facts
        self._new_url = new_url
        self._host = host

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[OursSession]:
        """An empty database; for several writers with a service that is ready. Raises BenchError at the end when the
        service was to commit for the writers and did not.
        """
        port, metrics = _processes.free_ports(2)
        with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as name:
            folder = Path(name)
            configuration = folder / "bench.conf"
            text = CONFIGURATION.format(
                url=self._new_url(folder),
                port=port,
                metrics=metrics if self._host else 0,
                folder=folder,
                multiproc=str(cell.writers > 1).lower(),
                group_commit="host" if self._host else "process",
            )
            configuration.write_text(text)
            with Store(Settings.from_file(configuration)):
                pass  # the schema
            if cell.writers == 1:
                yield OursSession(configuration, cell)
                return
            with Service(configuration, folder) as service:
                service.start()
                if not _processes.poll(service.ready, START):
                    raise BenchError(f"the publisher-service was not ready within {START:.0f} s")
                yield OursSession(configuration, cell)
                if self._host:
                    host_commits.check_used(metrics, cell.writers * cell.each)


def sqlite() -> Ours:
    """This library over SQLite."""
    durable = "synchronous=FULL (default): fsync before a commit returns"
    return Ours(Facts("sqlite", "pubsub_lib", durable, ""), lambda folder: f"sqlite:///{folder}/bench.db")


def postgresql(new_url: Callable[[], str]) -> Ours:
    """This library over a PostgreSQL server."""
    durable = "synchronous_commit=on (default): fsync before a commit returns"
    return Ours(Facts("postgresql", "pubsub_lib", durable, ""), lambda _: new_url())


def postgresql_host(new_url: Callable[[], str]) -> Ours:
    """The same with ``group_commit = host``. It has a row of its own only for several writers."""
    durable = "synchronous_commit=on (default): fsync before a commit returns"
    client = "pubsub_lib, group_commit = host"
    return Ours(Facts("postgresql-host", client, durable, "", least_writers=2), lambda _: new_url(), host=True)
