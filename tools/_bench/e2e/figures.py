"""The figures of the case: those with a required ratio as rows, and every side's as a table."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from _bench.e2e.measured import Measured
from _bench.e2e.peers import POSTGRESQL
from _bench.e2e.plan import VALUE_BYTES, Cell
from _bench.e2e.side import Facts, LeftOut
from _bench.measure import Row, row

Results = Mapping[tuple[Cell, str], Sequence[Measured]]
"""(cell, name of the side) → its rounds."""


class Requirement(msgspec.Struct, frozen=True):
    """A required ratio of ``side`` to the better one of ``peers``. With ``paced`` it compares the median latency."""

    name: str
    side: str
    peers: Sequence[str]
    writers: int
    paced: bool
    at: Literal["least", "most"]
    ratio: float


REQUIREMENTS: Final = (
    Requirement("e2e-etcd", "sqlite", ("etcd",), 1, False, "least", 2.0),
    Requirement("e2e-ovsdb", "sqlite", ("ovsdb",), 1, False, "least", 4.0),
    Requirement("e2e-notify", "postgresql", ("listen-notify",), 1, False, "least", 0.7),
    Requirement("e2e-notify-4", "postgresql", ("listen-notify",), 4, False, "least", 0.5),
    Requirement("e2e-notify-4-host", "postgresql-host", ("listen-notify",), 4, False, "least", 1.5),
    Requirement("e2e-latency", "sqlite", ("etcd", "ovsdb"), 1, True, "most", 0.8),
)


class Figure(msgspec.Struct, frozen=True):
    """One side's medians in one cell. ``rate``: of an unpaced cell; ``p50_ms`` and ``p99_ms``: of a paced one.
    ``confirmed``: the rate of the writes alone. ``fewest``: the smallest number of handler calls of a watcher, of
    ``events``; a side may merge changes.
    """

    cell: Cell
    side: str
    events: int
    fewest: int
    rate: float
    confirmed: float
    rate_rounds: Sequence[float]
    p50_ms: float = 0.0
    p50_rounds: Sequence[float] = ()
    p99_ms: float = 0.0
    p99_rounds: Sequence[float] = ()


class EndToEnd(msgspec.Struct, frozen=True):
    """The part of the report beside the rows. ``syncs``: synced blocks of 4 KiB per second (median)."""

    syncs: float
    sides: Sequence[Facts]
    left_out: Sequence[LeftOut]
    figures: Sequence[Figure]


def figure(cell: Cell, side: str, rounds: Sequence[Measured]) -> Figure:
    """The medians."""
    rates, p50s, p99s = ([each.rate for each in rounds], [each.p50 for each in rounds], [each.p99 for each in rounds])
    confirmed, fewest = statistics.median(each.confirmed for each in rounds), min(each.fewest for each in rounds)
    made = Figure(cell, side, cell.events, fewest, statistics.median(rates), confirmed, rates)
    if not cell.rate:
        return made
    return msgspec.structs.replace(
        made, p50_ms=statistics.median(p50s), p50_rounds=p50s, p99_ms=statistics.median(p99s), p99_rounds=p99s
    )


def required(names: Collection[str]) -> list[str]:
    """The names of the rows that a run with these peers (:data:`.peers.NAMES`) must have."""
    sides = {"sqlite", *names}
    if POSTGRESQL in names:
        sides.update(("postgresql-host", "listen-notify"))
    return [each.name for each in REQUIREMENTS if each.side in sides and sides & {*each.peers}]


def rows(results: Results, rounds: int) -> Sequence[Row]:
    """One row for each requirement whose sides have completed all their rounds; :func:`required` has the others."""
    made = []
    for each in REQUIREMENTS:
        values = {
            name: [measured.p50 * 1000 if each.paced else measured.rate for measured in done]
            for (cell, name), done in results.items()
            if (cell.writers, cell.changes, cell.watchers, cell.rate > 0) == (each.writers, 1, 1, each.paced)
            and len(done) == rounds
        }
        peers = {name: statistics.median(values[name]) for name in each.peers if name in values}
        if each.side not in values or not peers:
            continue
        best = (min if each.paced else max)(peers, key=lambda name: peers[name])
        unit, what = ("µs", "p50 at 100/s") if each.paced else ("tx/s", "durable")
        title = f"e2e {each.side}, {each.writers} writer{'' if each.writers == 1 else 's'}, {what}"
        pairs = list(zip(values[each.side], values[best], strict=True))
        made.append(row(each.name, title, unit, best, pairs, each.at, each.ratio))
    return made


def show(made: EndToEnd, console: Console) -> None:
    """Print a line for each cell, a column for each side, and what each peer does not give."""
    names = [each.name for each in made.sides]
    # A name is broken after its hyphen, so that all columns fit into 80 characters.
    headers = [name.replace("-", "-\n") for name in ("e2e", *names)]
    columns = (Column(name, no_wrap=True, min_width=max(map(len, name.splitlines()))) for name in headers)
    table = Table(*columns, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    lines: dict[str, dict[str, str]] = {}
    for each in made.figures:
        if each.cell.rate:
            lines.setdefault(f"{each.cell.short} p50", {})[each.side] = f"{each.p50_ms:.1f}"
            lines.setdefault(f"{each.cell.short} p99", {})[each.side] = f"{each.p99_ms:.1f}"
        else:
            lines.setdefault(each.cell.short, {})[each.side] = f"{each.rate:.0f}"
    for title, texts in lines.items():
        table.add_row(title, *(texts.get(name, "") for name in names))
    console.print(table)
    console.print(
        f"e2e: writers × changes × watchers; transactions/s, or with a rate p50 and p99 in ms. Values of {VALUE_BYTES} "
        "bytes. Lines without a required ratio have one round. The disk of the temporary folder syncs "
        f"{made.syncs:,.0f} blocks/s.",
        highlight=False,
    )
    for side in made.sides:
        lacks = f" It does not give: {side.lacks}." if side.lacks else ""
        client = f"{side.version}, {side.client}" if side.version else side.client
        console.print(f"{side.name} ({client}): {side.durable}.{lacks}", highlight=False)
    for left in made.left_out:
        console.print(f"{left.name} is left out: {left.why}", highlight=False)
