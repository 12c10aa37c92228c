"""The cases by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from _bench import burst, fullsync, hop, journal, latency
from _bench.measure import Row, Say, Sizes

Case = Callable[[Sizes, int, Say], Sequence[Row]]
"""Measures so many rounds."""

BURST10: Final = 0.6
BURST1: Final = 0.35
"""Of raw pyzmq's messages a second."""


def cases(data: Path) -> Mapping[str, Case]:
    """All, in the order in which they run. ``data``: the folder with the routes."""
    return {
        "burst10": partial(burst.run, 10, BURST10),
        "burst1": partial(burst.run, 1, BURST1),
        "hop": hop.run,
        "latency": latency.run,
        "sync": partial(fullsync.run, data),
        "journal": journal.run,
    }
