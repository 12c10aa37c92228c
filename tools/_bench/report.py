"""The figures as a table for people and as JSON."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zmq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from _bench.e2e import figures
from _bench.e2e.figures import EndToEnd
from _bench.measure import Row
from _bench.payload import VALUE_BYTES


class Machine(msgspec.Struct, frozen=True):
    """The machine on which the figures were measured."""

    processor: str
    cores: int
    python: str
    pyzmq: str
    libzmq: str
    load: float
    """Mean number of busy processes in the minute before."""


class Report(msgspec.Struct, frozen=True):
    """One run. ``quick``: too short for meaningful figures; it only checks that everything arrives."""

    machine: Machine
    value_bytes: int
    rounds: int
    quick: bool
    cases: Sequence[Row]
    e2e: EndToEnd | None = None
    """All figures of the case ``e2e``, if it ran."""
    not_measured: Sequence[str] = ()
    """Names of the required ratios of the cases that have no figure, or one that cannot be judged."""

    @property
    def missed(self) -> bool:
        """True when a measured ratio is missed; never for a quick run, whose ratios are not judged."""
        return not self.quick and any(each.valid and not each.met for each in self.cases)

    @property
    def met(self) -> bool:
        """True when every required ratio was measured and met, and always for a quick run."""
        return self.quick or not (self.missed or self.not_measured)


def machine() -> Machine:
    """This machine."""
    return Machine(
        _processor(), os.cpu_count() or 1, platform.python_version(), zmq.__version__, zmq.zmq_version(),
        round(os.getloadavg()[0], 1),
    )  # fmt: skip


def report(
    rows: Sequence[Row],
    rounds: int,
    quick: bool,
    on: Machine,
    e2e: EndToEnd | None = None,
    required: Sequence[str] = (),
) -> Report:
    """The report of all rows. ``required``: the names of the rows that must be there."""
    present = {each.name for each in rows}
    invalid = [each.name for each in rows if each.required is not None and not each.valid]
    absent = [name for name in required if name not in present]
    return Report(on, VALUE_BYTES, rounds, quick, rows, e2e, [*absent, *invalid])


def as_json(made: Report) -> str:
    """One indented JSON object."""
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode()


def show(made: Report, console: Console) -> None:
    """Print the table."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("case", "ours", "peer", "", "ratio", "required", ""):
        table.add_column(name, justify="right" if name in ("ours", "peer", "ratio", "required") else "left")
    for each in made.cases:
        wanted = "" if each.required is None else f"at {each.at} {each.required:g}"
        unit = each.unit
        table.add_row(
            each.title,
            f"{each.ours:,.0f} {unit}",
            f"{each.theirs:,.0f}",
            each.peer,
            f"{each.ratio:.2f}",
            wanted,
            _verdict(made, each),
        )
    console.print(table)
    on = made.machine
    console.print(
        f"Medians of {made.rounds} rounds in turns; values of {made.value_bytes} bytes. {on.processor}, "
        f"{on.cores} cores, "
        f"Python {on.python}, pyzmq {on.pyzmq}, libzmq {on.libzmq}; load before: {on.load}."
    )
    for each in made.cases:
        if each.note:
            console.print(f"{each.name}: {each.note}.")
    if made.not_measured:
        console.print(f"Not measured: {', '.join(made.not_measured)}.", highlight=False)
    if made.e2e is not None:
        figures.show(made.e2e, console)


def _verdict(made: Report, of: Row) -> str:
    if made.quick or of.required is None:
        return "not judged"
    if not of.valid:
        return "[bold red]invalid[/]"
    return "met" if of.met else "[bold red]missed[/]"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
