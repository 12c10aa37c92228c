"""The messages between the processes of a run: one JSON object per line, with its type."""

import msgspec

from pubsub_lib.core.model import Point

Away = tuple[float, float]
"""The begin and end of a process' absence, in Unix seconds. Changes that were written then waited for the process."""


class Finish(msgspec.Struct, frozen=True):
    """Command to a replica: wait until all changes up to ``position`` are applied, then write all objects to ``dump``.

    The latency of a change that was written while a process was ``away`` is the latency of the fault.
    """

    position: int
    dump: str
    timeout: float
    away: tuple[Away, ...] = ()


class GoOn(msgspec.Struct, frozen=True):
    """Command to a writer: commit this number of the transactions that were held back."""

    transactions: int


class Written(msgspec.Struct, frozen=True, tag=True):
    """A writer committed and handed over: it is at line ``done`` of the ``of`` lines of its share.

    ``resumed_at``: the first line of this process. ``point``: of the last transaction, None before the first one.
    """

    done: int
    of: int
    resumed_at: int
    point: Point | None = None


class Synced(msgspec.Struct, frozen=True, tag=True):
    """A replica finished its first sync, ``seconds`` after its start. ``memory``: resident bytes.

    ``fulls``: number of its full syncs, counted by topic.
    """

    seconds: float
    objects: int
    memory: int
    fulls: int


class Followed(msgspec.Struct, frozen=True, tag=True):
    """A replica's handler got ``changes`` changes; ``twice``: repeated calls for a version."""

    changes: int
    twice: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A replica's figures. Times in seconds, ``memory`` in bytes; latencies are None when no change was followed."""

    objects: int
    changes: int
    """Changes that reached the handler by following, without the changes of a full sync."""
    links: int
    calls: int
    """All calls of the handler."""
    twice: int
    """Repeated calls of the handler for a version."""
    conflated: int
    duplicates: int
    """Messages dropped because the replica already had their positions."""
    holes: int
    deltas: int
    fulls: int
    faults: int
    notifications: int | None
    """Received notifications of changes; None: the driver has none."""
    latency_p50: float | None
    """From the writer's timestamp just before COMMIT to the handler; of changes written while no process was away."""
    latency_p99: float | None
    max_latency: float | None
    """The maximum of all latencies, including faults."""
    memory: int
    publishers: tuple[str, ...]
    """The address of the current parent; of a replica without parents the addresses in the directory."""


class Finished(Account, frozen=True, tag=True):
    """The figures of a replica, after it wrote its dump."""

    sabotaged: tuple[str, str] | None = None
    """Table and key of the object that was corrupted."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot continue; one sentence."""

    sentence: str


Message = Written | Synced | Followed | Finished | Failed
