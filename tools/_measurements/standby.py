"""A private PostgreSQL standby, and a server that answers full syncs from it over HTTP.

``publisher-service`` refuses a standby. The server uses the library's route for another source (docs/sync-channel.md):
its answers have no known age, so by rule R3 a replica uses them for a first sync alone.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from _children import PATIENCE, ChildError, Line
from _private_server import PrivateServer
from _processes import poll
from _servers import PrivatePostgres, postgres_binaries
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import make_url

from pubsub_lib import Store
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.errors import ConfigError, StoreUnavailable
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.sync.packing import read_packed
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.sync.server import ROUTE, SyncRoute

SNAPSHOT_BYTES = 128 * 1024 * 1024
MAX_SECONDS = 60.0


class PrivateStandby(PrivatePostgres):
    """A streaming standby of a private server. ``port``: where it reaches that server, which may be a proxy."""

    label = "PostgreSQL standby"

    def __init__(self, primary: PrivateServer, port: int) -> None:
        super().__init__()
        self._database = make_url(primary.url).database or ""
        self._primary_port = port

    def create_database(self) -> str:
        """The URL of the primary's database: a standby has the same ones."""
        return self._url(self._database)

    def _create_command(self, folder: Path) -> Sequence[str]:
        if not (postgres_binaries() / "pg_basebackup").exists():
            raise ConfigError("no pg_basebackup found, which copies a server for a standby; install postgresql")
        super()._create_command(folder)
        at = ["-h", "127.0.0.1", "-p", str(self._primary_port), "-U", "postgres"]
        options = ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
        return [str(self._binaries / "pg_basebackup"), *at, "-D", str(folder / "data"), *options]


class Nothing(Collector):
    """No metrics."""

    def collect(self) -> Iterable[Metric]:
        """None."""
        return ()


def serve(line: Line, url: str, port: int, places: int) -> None:
    """Answer syncs from the database at this URL, which may start later, until the process is killed."""
    store = _opened(url)

    def source(question: SyncQuestion) -> SyncAnswer:
        return msgspec.structs.replace(store.read_sync(question.wants, read_packed), ages={})

    route = SyncRoute(source, places, MAX_SECONDS, SNAPSHOT_BYTES, once=True)
    Endpoint("127.0.0.1", port, Nothing(), list, "metrics_port", streams={ROUTE: route}).start()
    line.send()
    while True:
        line.wait()
        line.send(dict(route.counters()))


def _opened(url: str) -> Store:
    """The store, as soon as its server answers. Raises ChildError."""
    found: list[Store] = []

    def opened() -> bool:
        try:
            found.append(Store(url, read_only=True))
        except StoreUnavailable:
            return False
        return True

    if not poll(opened, PATIENCE):
        raise ChildError(f"the standby does not answer within {PATIENCE:.0f} s")
    return found[0]
