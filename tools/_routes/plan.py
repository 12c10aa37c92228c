"""What a run is to do, as frozen data that every process of it is given."""

from pathlib import Path
from typing import Annotated

import msgspec

from pubsub_lib.core.timing import Timing

PROGRESS = "progress"
"""Table and topic in which each writer keeps how far it is, written in the same transaction as its work."""
SESSION = "session"
"""Table in which each topic has one object, whose key is the topic: every writer rewrites it in each transaction on the
topic. Of such a hot key a link that is lost, late or applied out of order shows at once.
"""
SERVICE = "publisher-service"
"""The name of that process among the others of a run."""


class ReplicaPlan(msgspec.Struct, frozen=True):
    """One controller's replica: its name and its topics (none: everything). ``polling``: it follows the database
    although there is a service.
    """

    name: str
    topics: tuple[str, ...] = ()
    polling: bool = False


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL of one process when a fraction ``at`` of the changes is committed (of a writer: of its own share).

    ``victim`` is the name of a replica or of a writer, or ``SERVICE``. It is started again at once.
    """

    victim: str
    at: float


class Plan(msgspec.Struct, frozen=True):
    """One run. ``max_routes`` and ``max_changes`` cut the files, None: whole. Sizes in lines a transaction."""

    database: str
    """What people call it."""
    url: str
    routes: Path
    changes: Path
    replicas: tuple[ReplicaPlan, ...]
    service: bool = True
    """Writers are workers of a publisher-service, replicas follow its messages; else everybody polls."""
    kills: tuple[Kill, ...] = ()
    max_routes: int | None = None
    max_changes: int | None = None
    writers: Annotated[int, msgspec.Meta(ge=1)] = 4
    load_size: Annotated[int, msgspec.Meta(ge=1)] = 2000
    write_size: Annotated[int, msgspec.Meta(ge=1)] = 10
    replay_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Writers spread their work over so many seconds, 0: as fast as they can."""
    timing: Timing = Timing()
    results: Path | None = None
    """A folder, to be made, for what an audit of the run finds; None: no journals are kept, and nothing is audited."""
    bound: float = 60.0
    """Seconds within which a change must be in every replica, else the audit calls it late. Far above what a run
    needs: it is to show that nothing is lost or wrong, and not how busy the machine is.
    """
    sabotage: str = ""
    """The name of a replica in which one object is corrupted at the end, to see whether that is found."""
    patience: float = 120.0
    """Seconds without any sign of life from any child before the run is given up."""

    def writer(self, index: int) -> str:
        """The name of a writer; one that hands over to a service is a worker."""
        return f"{'worker' if self.service else 'writer'}-{index + 1}"


class WriterTask(msgspec.Struct, frozen=True, tag=True):
    """What a writer process is told: its share of the changes. ``pause``: seconds between the begins of two
    transactions. ``held_back``: of the last so many transactions it commits each only when it is told to.
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
    """What a controller's process is told."""

    name: str
    configuration: str
    topics: tuple[str, ...]
    sabotage: bool = False
    """Corrupt one object before the account is given."""


Task = WriterTask | ReplicaTask
