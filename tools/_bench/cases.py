"""The cases by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from _bench import burst, commits, fullsync, hop, host_commits, journal, latency, pgnotify, relay, relay_syncs
from _bench.measure import Log, Row, Sizes

Case = Callable[[Sizes, int, Log], Sequence[Row]]
"""Measures a number of rounds."""

BURST10: Final = 0.6
BURST1: Final = 0.35
"""Required ratio to raw pyzmq's messages per second."""


def cases(data: Path) -> Mapping[str, Case]:
    """All cases, in the order in which they run. ``data``: the folder with the routes."""
    return {
        "burst10": partial(burst.run, 10, BURST10),
        "burst1": partial(burst.run, 1, BURST1),
        "hop": hop.run,
        "latency": latency.run,
        "relay": relay.run,
        "relay-syncs": relay_syncs.run,
        "sync": partial(fullsync.run, data),
        "journal": journal.run,
        "store": partial(commits.run, host_commits.measured),
        "pgnotify": pgnotify.run,
    }
