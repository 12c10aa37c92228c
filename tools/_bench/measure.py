"""A measured row: ours and its peer, measured in turns, so that both run under the same conditions."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from pubsub_lib.errors import PubSubError

Measured = TypeVar("Measured")
Log = Callable[[str], None]
"""Shows the progress."""


class BenchError(PubSubError):
    """A case could not be completed: a replica's contents are wrong, or the figures are invalid."""


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of the cases, as numbers of items."""

    keys: int = 100_000
    changes: int = 200_000
    """Of one burst; its peer sends the same number of messages."""
    hop_changes: int = 100_000
    chain_events: int = 20_000
    """Of the re-created chain, which is slower."""
    latency_messages: int = 2_000
    routes: int | None = None
    """Of the full sync; None: all."""
    commits: Sequence[tuple[int, int]] = ((1, 400), (20, 200), (1000, 16))
    """Pairs: changes in a transaction, transactions of a round by all threads together."""


QUICK = Sizes(
    keys=500, changes=1_000, hop_changes=400, chain_events=200, latency_messages=50, routes=1_000,
    commits=((1, 8), (20, 8))
)


class Row(msgspec.Struct, frozen=True):
    """One measure with its peer. ``at``: whether ``ratio`` must be at least or at most ``required``."""

    name: str
    title: str
    unit: str
    peer: str
    ours_rounds: Sequence[float]
    peer_rounds: Sequence[float]
    ours: float
    """Median, as are all figures without ``_rounds``."""
    theirs: float
    ratio: float
    required: float | None
    """None: the ratio is not judged."""
    at: Literal["least", "most"]
    met: bool
    note: str = ""

    @property
    def valid(self) -> bool:
        """Whether the ratio can be judged. A difference of medians may be negative on a busy machine."""
        return self.ours > 0 and self.theirs > 0


def row(
    name: str,
    title: str,
    unit: str,
    peer: str,
    values: Sequence[tuple[float, float]],
    at: Literal["least", "most"],
    required: float | None,
    note: str = "",
) -> Row:
    """The row of (ours, peer's) values, one pair a round. The ratio is that of the medians, and 0 when the peer's is 0.
    A required ratio of medians that are not positive is not met.
    """
    ours = statistics.median(pair[0] for pair in values)
    theirs = statistics.median(pair[1] for pair in values)
    ratio = ours / theirs if theirs else 0.0
    judged = ours > 0 and theirs > 0
    met = required is None or (judged and (ratio >= required if at == "least" else ratio <= required))
    return Row(
        name, title, unit, peer, [pair[0] for pair in values], [pair[1] for pair in values],
        ours, theirs, ratio, required, at, met, note,
    )  # fmt: skip


def in_turns(
    rounds: int, ours: Callable[[], Measured], peer: Callable[[], Measured], log: Log
) -> Iterator[tuple[Measured, Measured]]:
    """(ours, peer's) of each round; the first of the two alternates from round to round."""
    for number in range(rounds):
        log(f"round {number + 1} of {rounds}")
        if number % 2:
            mine = ours()
            yield mine, peer()
        else:
            other = peer()
            yield ours(), other
