"""The plan of a run, as frozen data for each of its processes."""

from pathlib import Path
from typing import Annotated

import msgspec

from _routes.drivers import ZMQ
from pubsub_lib.core.timing import Timing

PROGRESS = "progress"
"""Table and topic of the writers' progress, which each writer updates in the same transaction as its changes."""
SESSION = "session"
"""Table in which each topic has one object, whose key is the topic: every writer rewrites it in each transaction on the
topic. With such a hot key a link that is lost, late or applied out of order is visible at once.
"""
SERVICE = "publisher-service"
"""The name of the service's process in a run."""


class ReplicaPlan(msgspec.Struct, frozen=True):
    """One controller's replica: its name and its topics (none: all). ``polling``: it polls the database although a
    service runs. ``parents``: the names of the relays to which it listens, one at a time; it has no database then.
    """

    name: str
    topics: tuple[str, ...] = ()
    polling: bool = False
    parents: tuple[str, ...] = ()


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL of one process when a fraction ``at`` of the changes is committed (for a writer: of its own share).

    ``victim`` is the name of a replica, a writer or a relay, or ``SERVICE``. It is started again at once.
    """

    victim: str
    at: float


class Plan(msgspec.Struct, frozen=True):
    """One run. ``max_routes`` and ``max_changes`` limit the lines of the files; None: no limit. Sizes are in lines per
    transaction.
    """

    database: str
    """The name of the database system, for people."""
    url: str
    routes: Path
    changes: Path
    replicas: tuple[ReplicaPlan, ...]
    driver: str = ZMQ
    """How the service sends: a key of ``DRIVERS``."""
    service: bool = True
    """Writers are workers of a publisher-service, and replicas receive its messages; else all replicas poll."""
    relays: tuple[str, ...] = ()
    """The names of the relays below the service, which follow the topics of the replicas below them."""
    kills: tuple[Kill, ...] = ()
    max_routes: int | None = None
    max_changes: int | None = None
    writers: Annotated[int, msgspec.Meta(ge=1)] = 4
    load_size: Annotated[int, msgspec.Meta(ge=1)] = 2000
    write_size: Annotated[int, msgspec.Meta(ge=1)] = 10
    replay_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Writers spread their changes over this number of seconds; 0: as fast as possible."""
    timing: Timing = Timing()
    results: Path | None = None
    """A new folder for the results of an audit of the run; None: no journals and no audit."""
    bound: float = 60.0
    """Seconds within which a change must be in every replica, else the audit calls it late. It is far above what a run
    needs: the audit looks for lost and wrong changes and does not measure how busy the machine is.
    """
    sabotage: str = ""
    """The name of a replica in which one object is corrupted at the end, to test that the audit finds it."""
    patience: float = 120.0
    """Maximum number of seconds without a message from any child; then the run fails."""

    @property
    def relay_topics(self) -> tuple[str, ...]:
        """The topics of the replicas below relays."""
        return tuple(sorted({topic for replica in self.replicas if replica.parents for topic in replica.topics}))

    def writer(self, index: int) -> str:
        """The name of a writer; a writer that hands over to a service is a worker."""
        return f"{'worker' if self.service else 'writer'}-{index + 1}"


class WriterTask(msgspec.Struct, frozen=True, tag=True):
    """The task of a writer process: its share of the changes. ``pause``: seconds between the begins of two
    transactions. ``held_back``: number of last transactions, each of which it commits only after a ``GoOn``.
    """

    name: str
    configuration: str
    changes: str
    maximum: int | None
    index: int
    of: int
    size: int
    pause: float
    held_back: int


class ReplicaTask(msgspec.Struct, frozen=True, tag=True):
    """The task of a controller's process."""

    name: str
    configuration: str
    topics: tuple[str, ...]
    sabotage: bool = False
    """Corrupt one object before the figures are reported."""


Task = WriterTask | ReplicaTask
