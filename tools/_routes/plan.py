"""What a run is to do, as frozen data that every process of it is given."""

from pathlib import Path
from typing import Annotated

import msgspec

from pubsub_lib.core.timing import Timing

PROGRESS = "progress"
"""Table and topic in which each writer keeps how far it is, written in the same transaction as its work."""


class ReplicaPlan(msgspec.Struct, frozen=True):
    """One replica: its name and its topics (none: everything)."""

    name: str
    topics: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """One run. ``most_routes`` and ``most_changes`` cut the files, None: whole. Sizes in lines a transaction.

    ``killed_writer`` and ``killed_replica`` are indexes; those processes are killed in the middle of their work
    and started again.
    """

    database: str
    """What people call it."""
    url: str
    routes: Path
    changes: Path
    replicas: tuple[ReplicaPlan, ...]
    most_routes: int | None = None
    most_changes: int | None = None
    writers: Annotated[int, msgspec.Meta(ge=1)] = 4
    load_size: Annotated[int, msgspec.Meta(ge=1)] = 2000
    write_size: Annotated[int, msgspec.Meta(ge=1)] = 10
    killed_writer: int = 1
    killed_replica: int = 0
    timing: Timing = Timing()
    patience: float = 120.0
    """Seconds without any sign of life from any child before the run is given up."""


class WriterTask(msgspec.Struct, frozen=True, tag=True):
    """What a writer process is told: its share of the changes."""

    name: str
    url: str
    changes: str
    most: int | None
    index: int
    of: int
    size: int


class ReplicaTask(msgspec.Struct, frozen=True, tag=True):
    """What a replica process is told. ``die_at``: it kills itself at its so manieth followed change; 0: never."""

    name: str
    url: str
    topics: tuple[str, ...]
    timing: Timing
    die_at: int = 0


Task = WriterTask | ReplicaTask
