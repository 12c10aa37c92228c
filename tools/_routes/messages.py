"""What the processes of a run tell each other: one JSON object a line, told apart by its type."""

import msgspec

from pubsub_lib.core.model import Point

Away = tuple[float, float]
"""From when to when a process was away, in Unix seconds: what was written then had to wait for it."""


class Finish(msgspec.Struct, frozen=True):
    """To a replica: wait until you have everything up to ``position``, then write all objects to ``dump``.

    Of changes that were written while something was ``away``, the latency is that of the fault.
    """

    position: int
    dump: str
    timeout: float
    away: tuple[Away, ...] = ()


class GoOn(msgspec.Struct, frozen=True):
    """To a writer: commit so many more of the transactions that were held back."""

    transactions: int


class Written(msgspec.Struct, frozen=True, tag=True):
    """A writer committed, and handed over: it is at line ``done`` of its share of ``of``.

    ``resumed_at``: where this process began. ``point``: of the last transaction, None before it.
    """

    done: int
    of: int
    resumed_at: int
    point: Point | None = None


class Synced(msgspec.Struct, frozen=True, tag=True):
    """A replica has its first sync, so many seconds after it was started. ``memory``: resident bytes.

    ``fulls``: full syncs that it took, counted by topic.
    """

    seconds: float
    objects: int
    memory: int
    fulls: int


class Followed(msgspec.Struct, frozen=True, tag=True):
    """A replica's handler has had so many changes; ``twice``: calls for a version that it had heard of before."""

    changes: int
    twice: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A replica's figures. Times in seconds, ``memory`` in bytes; latencies are None when nothing was followed."""

    objects: int
    changes: int
    """Changes that reached the handler by following, without those that a full sync brought."""
    links: int
    calls: int
    """Of the handler, for whatever reason."""
    twice: int
    """Of these, calls for a version that the handler had heard of before."""
    conflated: int
    duplicates: int
    """Messages dropped because they were at or behind known."""
    holes: int
    deltas: int
    fulls: int
    faults: int
    latency_p50: float | None
    """From the writer's stamp, just before its COMMIT, to the handler; of changes written while nothing was away."""
    latency_p99: float | None
    max_latency: float | None
    """The longest of all, faults included."""
    memory: int


class Finished(Account, frozen=True, tag=True):
    """A replica's account of itself, after its dump was written."""

    sabotaged: tuple[str, str] | None = None
    """Table and key of the object that was corrupted."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot go on; one sentence."""

    sentence: str


Message = Written | Synced | Followed | Finished | Failed
