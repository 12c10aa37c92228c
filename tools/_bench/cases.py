"""The cases by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from _bench import burst, commits, fullsync, hop, host_commits, journal, keyed, latency, pgnotify, relay, relay_syncs
from _bench.measure import Log, Row, Sizes

Case = Callable[[Sizes, int, Log], Sequence[Row]]
"""Measures a number of rounds."""

BURST10: Final = 0.6
BURST1: Final = 0.35
"""Required ratio to raw pyzmq's messages per second."""

REQUIRED: Final[Mapping[str, Sequence[str]]] = {
    "burst10": ("burst10",),
    "burst1": ("burst1",),
    "hop": ("hop",),
    "latency": ("latency", "latency-hop"),
    "keys": (),
    "relay": ("relay-hop",),
    "relay-syncs": ("relay-syncs",),
    "sync": ("sync",),
    "journal": ("journal", "journal-work"),
    "store": (
        "store-sqlite-1-1", "store-sqlite-20-1", "store-postgresql-1-1", "store-postgresql-1-8",
        "store-postgresql-host",
    ),
    "pgnotify": ("pgnotify-postgresql",),
}  # fmt: skip
"""Case → its rows with a required ratio. A row may be missing, for example without PostgreSQL's binaries."""


def cases(data: Path) -> Mapping[str, Case]:
    """All cases, in the order in which they run. ``data``: the folder with the routes."""
    return {
        "burst10": partial(burst.run, 10, BURST10),
        "burst1": partial(burst.run, 1, BURST1),
        "hop": hop.run,
        "latency": latency.run,
        "keys": keyed.run,
        "relay": relay.run,
        "relay-syncs": relay_syncs.run,
        "sync": partial(fullsync.run, data),
        "journal": journal.run,
        "store": partial(commits.run, host_commits.measured),
        "pgnotify": pgnotify.run,
    }
