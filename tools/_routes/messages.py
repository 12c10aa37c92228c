"""What the processes of a run tell each other: one JSON object a line, told apart by its type."""

import msgspec


class Finish(msgspec.Struct, frozen=True):
    """To a replica: wait until you have everything up to ``position``, then write all objects to ``dump``."""

    position: int
    dump: str
    timeout: float


class Written(msgspec.Struct, frozen=True, tag=True):
    """A writer committed: it is at line ``done`` of its share of ``of``. ``resumed_at``: where this process began."""

    done: int
    of: int
    resumed_at: int


class Synced(msgspec.Struct, frozen=True, tag=True):
    """A replica has its first sync, so many seconds after it was started. ``memory``: resident bytes."""

    seconds: float
    objects: int
    memory: int


class Followed(msgspec.Struct, frozen=True, tag=True):
    """A replica's handler has had so many changes."""

    changes: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    """A replica's account of itself, after its dump was written. Times in seconds, ``memory`` in bytes."""

    objects: int
    changes: int
    """Changes that reached the handler by following, without those that a full sync brought."""
    links: int
    conflated: int
    duplicates: int
    """Messages dropped because they were at or behind known."""
    holes: int
    deltas: int
    fulls: int
    faults: int
    latency_p50: float | None
    """From the writer's stamp, just before its COMMIT, to the handler; None when nothing was followed."""
    latency_p99: float | None
    memory: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot go on; one sentence."""

    sentence: str


Message = Written | Synced | Followed | Finished | Failed
