"""Starts and kills everything of ``tools/bench herd`` at once, and reads what each start has cost."""

import argparse
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from _bench.measure import BenchError
from _children import Children, Forked
from _private_server import PrivateServer
from _processes import poll
from _servers import PrivatePostgres
from _standby import PrivateStandby
from sqlalchemy import make_url

from _measurements import counting_proxy
from _measurements.command import log
from _measurements.counting_proxy import Counts
from _measurements.herd_processes import PATIENCE, Node, Seen, Use, Wanted, commit, follow, names
from pubsub_lib import Settings

Each = TypeVar("Each")

STANDBYS: Final = 2
PLACES: Final = 4
"""The default of ``max_syncs``."""
PER_PROGRAM: Final = 4
"""Connections of one program to a database: its threads that read or write at the same time. A service that answers
syncs from the database has ``PLACES`` more.
"""


class Start(msgspec.Struct, frozen=True):
    """What was measured of one start of everything."""

    replicas: int
    seconds: Sequence[float]
    """Of each replica, from the start until it was synced."""
    fulls: int
    """Topics that all replicas together have read in full."""
    failed: int
    """Failed syncs of all replicas."""
    replica_processor: float
    """Seconds of processor time of all replicas."""
    sent: Mapping[str, int]
    """Bytes out of each database."""
    connections: int
    """The largest number of connections to all databases."""
    allowed: int
    """The limit of connections, which does not depend on the number of replicas."""
    uses: Sequence[Use]
    """Of all services and relays."""

    @property
    def longest(self) -> float:
        """Seconds until all are synced."""
        return max(self.seconds, default=0.0)


class Database:
    """A private server that runs, behind a proxy that counts."""

    def __init__(self, name: str, server: PrivateServer, children: Children, stack: ExitStack) -> None:
        self.name = name
        self.server = stack.enter_context(server)
        self.counts = Counts()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
            children.fork(counting_proxy.serve, listener, server.port, self.counts).receive(PATIENCE)
        self.direct = server.url
        """For this command itself: not counted."""
        self.url = make_url(server.url).set(port=self.port).render_as_string(hide_password=False)

    def kill(self) -> None:
        """SIGKILL, and count from the beginning."""
        self.server.kill()
        if not poll(lambda: self.counts.open == 0, PATIENCE):
            raise BenchError(f"connections to {self.name} are open although both ends were killed")
        self.counts.begin_again()


class Herd(ABC):
    """Everything that is killed and started. ``databases``: the first one is the primary."""

    def __init__(
        self, folder: Path, options: argparse.Namespace, databases: Sequence[Database], children: Children
    ) -> None:
        folder.mkdir()
        self.options = options
        self.databases = databases
        self.topics = names(options.topics)
        self.origin = Node(folder, "api-1", "origin", children)
        self.origin.configure(f"store_url = {databases[0].url}\n", "recount_time = 0\n")  # see the module herd
        self.nodes = [self.origin]
        self._children = children
        self._forked: list[Forked] = []
        self._mark = 0

    @abstractmethod
    def replica(self, number: int) -> Settings:
        """The settings of a replica."""

    @property
    @abstractmethod
    def allowed_connections(self) -> int:
        """The limit of connections to all databases."""

    def start(self, replicas: int) -> Start:
        """Kill everything, start it, and wait until all have everything. ``replicas``: their number."""
        self.kill()
        wanted = [self._wanted(number) for number in range(replicas)]
        processes = min(replicas, int(self.options.processes))
        begun = time.monotonic()
        for node in self.nodes:
            node.start()
        forked = [self._children.fork(follow, wanted[number::processes]) for number in range(processes)]
        self._forked = forked
        for database in self.databases:
            database.server.restart()
        seen: list[Seen] = [each.receive(PATIENCE) for each in forked]
        for node in self.nodes:
            node.wait_ready()
        log(f"{replicas} replicas and {len(self.nodes)} services are synced after {time.monotonic() - begun:.1f} s")
        if forked:
            seen = self._marked(forked)
        return Start(
            replicas=replicas,
            seconds=sorted(at - begun for each in seen for at in each.synced),
            fulls=sum(each.fulls for each in seen),
            failed=sum(each.failed for each in seen),
            replica_processor=sum(each.processor for each in seen),
            sent={each.name: each.counts.sent for each in self.databases},
            connections=sum(each.counts.most for each in self.databases),
            allowed=self.allowed_connections,
            uses=[node.use() for node in self.nodes],
        )

    def _marked(self, forked: Sequence[Forked]) -> list[Seen]:
        """Commit one change of each topic, which every replica must receive."""
        self._mark += 1
        direct = self.databases[0].direct
        writer = self._children.fork(commit, direct, self.origin.config, self.topics, self._mark)
        writer.receive(PATIENCE)
        self._children.end(writer)
        for each in forked:
            each.send(self._mark)
        return [each.receive(PATIENCE) for each in forked]

    def kill(self) -> None:
        """SIGKILL of everything."""
        for each in self._forked:
            self._children.end(each)
        self._forked = []
        for node in self.nodes:
            node.kill()
        for database in self.databases:
            database.kill()

    def _wanted(self, number: int) -> Wanted:
        """The topics of a replica: the next ones of all."""
        count = len(self.topics)
        chosen = [(number * self.options.follow + more) % count for more in range(min(self.options.follow, count))]
        sizes = {self.topics[each]: len(range(each, self.options.objects, count)) for each in chosen}
        return Wanted(self.replica(number), sizes)


class RelayHerd(Herd):
    """Upper relays read the database. Lower relays and replicas have none."""

    def __init__(
        self, folder: Path, options: argparse.Namespace, databases: Sequence[Database], children: Children
    ) -> None:
        super().__init__(folder, options, databases, children)
        topics = f"topics = {', '.join(self.topics)}\n"
        self.uppers = [Node(folder, f"upper-{number}", "relay", children) for number in range(options.uppers)]
        self.lowers = [Node(folder, f"lower-{number}", "relay", children) for number in range(options.lowers)]
        for node in self.uppers:
            others = ", ".join(each.url for each in self.uppers if each is not node)
            siblings = f"sibling_urls = {others}\n" if others else ""
            own = f"store_url = {databases[0].url}\nparents = {self.origin.address}\n"
            node.configure(own + topics, siblings)
        for number, node in enumerate(self.lowers):
            above = rotated(self.uppers, number)
            parents, urls = ", ".join(each.address for each in above), ", ".join(each.url for each in above)
            node.configure(f"parents = {parents}\nsync_url = {urls}\n{topics}")
        self.nodes += [*self.uppers, *self.lowers]

    @property
    def allowed_connections(self) -> int:
        """The origin and the upper relays."""
        return PER_PROGRAM * (1 + len(self.uppers))

    def replica(self, number: int) -> Settings:
        """It knows the relays alone."""
        parents = tuple(each.address for each in rotated(self.lowers, number))
        return Settings(
            driver="zmq_pubsub_driver", parents=parents, replica_name=f"agent-{number}", default_topic=False
        )


class StandbyHerd(Herd):
    """The replicas listen to the origin, and read their first syncs at a standby; all later ones at the origin."""

    def __init__(
        self, folder: Path, options: argparse.Namespace, databases: Sequence[Database], children: Children
    ) -> None:
        super().__init__(folder, options, databases, children)
        self.standbys = [Node(folder, each.name, "standby", children) for each in databases[1:]]
        for node, database in zip(self.standbys, databases[1:], strict=True):
            node.configure(f"store_url = {database.url}\n")
        self.nodes += self.standbys

    @property
    def allowed_connections(self) -> int:
        """All services answer syncs, and each standby is connected to the primary."""
        standbys = len(self.standbys)
        return (PER_PROGRAM + PLACES) * (1 + standbys) + standbys

    def replica(self, number: int) -> Settings:
        """It knows the origin's address, and where syncs are answered."""
        urls = [*(each.url for each in rotated(self.standbys, number)), self.origin.url]
        return Settings(
            driver="zmq_pubsub_driver", addresses=(self.origin.address,), sync_url=", ".join(urls),
            replica_name=f"agent-{number}", default_topic=False,
        )  # fmt: skip


def primary(children: Children, stack: ExitStack) -> Database:
    """A new server, which runs."""
    return Database("primary", PrivatePostgres(), children, stack)


def standbys_of(database: Database, children: Children, stack: ExitStack) -> list[Database]:
    """Copies of a server, which follow it."""
    made = [PrivateStandby(database.server, database.port) for _ in range(STANDBYS)]
    return [Database(f"standby-{number}", each, children, stack) for number, each in enumerate(made)]


def rotated(some: Sequence[Each], by: int) -> list[Each]:
    """The same, beginning with another one: so children share what is above them."""
    at = by % len(some)
    return [*some[at:], *some[:at]]
