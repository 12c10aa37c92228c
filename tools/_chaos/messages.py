"""The messages between the parent and its processes: one JSON object per line, with its type.

The first line that a process reads is its task: arguments are visible to all users, and a URL may hold a password.
"""

from collections.abc import Mapping

import msgspec


class WorkerTask(msgspec.Struct, frozen=True, tag=True):
    """A worker commits transactions of ``size`` changes, every ``pause`` seconds, until ``Stop``.

    ``seed`` is different for each start, so that a new process does not repeat the choices of the last one.
    """

    name: str
    configuration: str
    topics: tuple[str, ...]
    keys: int
    size: int
    pause: float
    seed: str


class ReplicaTask(msgspec.Struct, frozen=True, tag=True):
    """A replica follows ``topics`` (empty: everything) until ``Finish``. ``sabotage``: it then corrupts one object."""

    name: str
    configuration: str
    topics: tuple[str, ...]
    sabotage: bool = False


class StormTask(msgspec.Struct, frozen=True, tag=True):
    """Subscribers with ``topics`` topics each, until ``Stop``. ``followed``: those of the topics that have objects.

    ``addresses``: of publishers over ZeroMQ; ``configuration``: the file of another driver, or "".
    """

    name: str
    addresses: tuple[str, ...]
    subscribers: int
    topics: int
    followed: tuple[str, ...]
    configuration: str = ""


class HostileTask(msgspec.Struct, frozen=True, tag=True):
    """Send garbage to publishers' ``addresses``, and to the sockets ``hops`` of workers, until it is killed.

    ``port``, unless 0: bind it, and send garbage to each subscriber that connects. ``broker``, unless 0: the port of
    the broker of ``driver``, through which garbage goes to everyone, also on ``topics``. ``seed``: of the garbage.
    """

    name: str
    seed: str
    addresses: tuple[str, ...] = ()
    hops: tuple[str, ...] = ()
    port: int = 0
    driver: str = ""
    broker: int = 0
    topics: tuple[str, ...] = ()


class LieTask(msgspec.Struct, frozen=True, tag=True):
    """Send changes that were never committed on ``topics`` as the service ``service``, until the process is killed.

    ``port``: bind it, and lie to each subscriber that connects; 0: hand the changes over to the service, as a worker.
    ``configuration``: the file of a worker of the service. ``seed``: of the lies.
    """

    name: str
    seed: str
    service: str
    configuration: str
    topics: tuple[str, ...]
    port: int = 0


Task = WorkerTask | ReplicaTask | StormTask | HostileTask | LieTask


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Order to a worker: commit nothing more, and end. To a storm: close all subscribers, and end."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Order to a replica: wait until everything up to ``position`` is handled, write all objects to ``dump``, end."""

    position: int
    dump: str
    timeout: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The process works: a replica is synced, a worker has opened the store, a storm's subscribers are connected."""


class Wrote(msgspec.Struct, frozen=True, tag=True):
    """A worker's commits. ``done``: number of its transactions, counted in the database, that were acknowledged.

    ``changes`` and ``failed`` (attempts that raised an error) are of this process.
    """

    done: int
    changes: int
    failed: int


class Followed(msgspec.Struct, frozen=True, tag=True):
    """What a replica's process got so far. Times in seconds.

    ``deliveries``: changes given to its handler that were committed while it followed; ``calls``: all calls, also for
    the objects of full syncs; ``twice``: repeated calls for one version, without those that a changed history explains
    (``undone``). ``staleness``: the longest that it reported after its first sync; ``latency``: the longest from a
    commit to the handler. ``messages``: envelopes with links that came from each service, or notifications of the
    database; ``polling``: whether it now polls the database. ``lies``: calls of the handler for objects that were never
    committed.
    """

    deliveries: int = 0
    calls: int = 0
    twice: int = 0
    staleness: float = 0.0
    latency: float = 0.0
    messages: Mapping[str, int] = {}
    polling: bool = True
    lies: int = 0
    undone: int = 0


class Finished(msgspec.Struct, frozen=True, tag=True):
    """A replica wrote its objects to the dump. ``late``: why it did not handle everything in time; "": it did."""

    objects: int
    late: str = ""
    sabotaged: tuple[str, str] | None = None
    """Table and key of the object that was corrupted."""


class Lied(msgspec.Struct, frozen=True, tag=True):
    """A liar is about to send this link. ``place``: its topic, position and nonce."""

    place: tuple[str, int, int]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process ends with an error; one sentence. ``error``: the type of the exception, or ""."""

    sentence: str
    error: str = ""


Order = Stop | Finish
Message = Ready | Wrote | Followed | Finished | Lied | Failed
