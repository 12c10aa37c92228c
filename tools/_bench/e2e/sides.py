"""All sides by name: opened for a run, or left out with one sentence."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from _servers import PrivatePostgres

from _bench.e2e import bare, ours
from _bench.e2e.bare_host import BareHost
from _bench.e2e.etcd import Etcd
from _bench.e2e.jetstream import JetStream
from _bench.e2e.notify import Notify
from _bench.e2e.ovsdb import Ovsdb
from _bench.e2e.peers import POSTGRESQL
from _bench.e2e.redis_stream import RedisStream
from _bench.e2e.side import LeftOut, LeftOutError, Side
from _bench.measure import Log
from pubsub_lib.errors import ConfigError, StoreUnavailable

DOWNLOADED: Final[Mapping[str, type[Side]]] = {"etcd": Etcd, "ovsdb": Ovsdb, "nats": JetStream, "redis": RedisStream}


class Sides:
    """The sides of a run by name, in the order of the report."""

    def __init__(self) -> None:
        self.all: dict[str, Side] = {}
        self.left_out: list[LeftOut] = []

    def leave_out(self, name: str, error: Exception) -> None:
        """Do without this side from now on."""
        self.all.pop(name, None)
        self.left_out.append(LeftOut(name, " ".join(str(error).split()) or type(error).__name__))


@contextmanager
def opened(names: Sequence[str], log: Log) -> Iterator[Sides]:
    """The sides with these names. The PostgreSQL server runs until the end of the block."""
    sides = Sides()
    sides.all["sqlite"] = ours.sqlite()
    sides.all["bare-sqlite3"] = bare.sqlite()
    with ExitStack() as stack:
        if POSTGRESQL in names:
            try:
                server = stack.enter_context(PrivatePostgres(durable=True))
            except (ConfigError, StoreUnavailable) as error:
                sides.leave_out(POSTGRESQL, error)
            else:
                sides.all[POSTGRESQL] = ours.postgresql(server.create_database)
                sides.all["postgresql-host"] = ours.postgresql_host(server.create_database)
                sides.all["bare-psycopg"] = bare.postgresql(server.create_database)
                sides.all["bare-psycopg-host"] = BareHost(server.create_database)
                sides.all["listen-notify"] = Notify(server.create_database)
        for name, make in DOWNLOADED.items():
            if name in names:
                log(f"download {name}")
                try:
                    sides.all[name] = make()
                except LeftOutError as error:
                    sides.leave_out(name, error)
        yield sides
