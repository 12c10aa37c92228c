"""The figures as a table for people and as JSON."""

import os
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from _bench_audit.chain import AUDIT, BARE, JOIN, Measured

RATIO: Final = 1.5
"""Maximum ratio of the audit's time to the time of the bare chain."""
HOT_RATIO: Final = 2.0
"""Maximum ratio of the time with a hot topic to the time with evenly spread traffic."""


class Figures(msgspec.Struct, frozen=True):
    """Medians of one set of journals, in seconds of the wall clock. ``as_expected``: all verdicts were ``ok``, and none
    was missing.
    """

    messages: int
    hot: bool
    audit: float
    bare: float
    join: float
    audit_processor: float
    bare_processor: float
    join_processor: float
    audit_megabytes: float
    bare_megabytes: float
    as_expected: bool

    @property
    def ratio(self) -> float:
        """The audit's time relative to the bare chain's."""
        return self.audit / self.bare


class Report(msgspec.Struct, frozen=True):
    """One call of the tool."""

    cores: int
    memory: str
    """Maximum size of the JVM's heap."""
    rounds: int
    load: float
    figures: Sequence[Figures]

    def wrong(self) -> list[str]:
        """A sentence for each missed requirement."""
        found = [f"{_name(each)}: not every verdict is ok" for each in self.figures if not each.as_expected]
        found += [
            f"{_name(each)}: {each.ratio:.2f} times the bare chain, more than {RATIO}"
            for each in self.figures
            if each.ratio > RATIO and not each.hot
        ]
        for hot in (each for each in self.figures if each.hot):
            for even in self.figures:
                times = hot.audit / even.audit
                if not even.hot and even.messages == hot.messages and times > HOT_RATIO:
                    found.append(f"{_name(hot)}: {times:.2f} times the time of even traffic, more than {HOT_RATIO}")
        found += [
            f"{_name(two)}: {two.audit / one.audit:.2f} times the time of {_name(one)}, more than {_times(one, two):g}"
            for one, two in self.steps()
            if two.audit / one.audit > _times(one, two)
        ]
        return found

    def steps(self) -> list[tuple[Figures, Figures]]:
        """Each size of evenly spread traffic, with the next larger size."""
        even = sorted((each for each in self.figures if not each.hot), key=lambda each: each.messages)
        return [(one, two) for one, two in pairwise(even) if one.messages < two.messages]


def figures(messages: int, hot: bool, measured: Mapping[str, Sequence[Measured]]) -> Figures:
    """Medians of all rounds."""

    def median(what: str, name: str) -> float:
        values: list[float] = [getattr(each, name) for each in measured[what]]
        return round(statistics.median(values), 1)

    return Figures(
        messages, hot,
        audit=median(AUDIT, "seconds"), bare=median(BARE, "seconds"), join=median(JOIN, "seconds"),
        audit_processor=median(AUDIT, "processor"), bare_processor=median(BARE, "processor"),
        join_processor=median(JOIN, "processor"),
        audit_megabytes=max(each.megabytes for each in measured[AUDIT]),
        bare_megabytes=max(each.megabytes for each in measured[BARE]),
        as_expected=all(each.verdicts == {"ok": messages} for one in measured.values() for each in one),
    )  # fmt: skip


def report(found: Sequence[Figures], memory: str, rounds: int) -> Report:
    """The report of these figures."""
    return Report(os.cpu_count() or 1, memory, rounds, round(os.getloadavg()[0], 1), found)


def show(made: Report, console: Console) -> None:
    """Print the table and the missed requirements."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("messages", "audit", "bare chain", "ratio", "join alone", "processor", "memory", "of the chain"):
        table.add_column(name, justify="right")
    for each in made.figures:
        table.add_row(
            _name(each), f"{each.audit:.1f} s", f"{each.bare:.1f} s", f"{each.ratio:.2f}", f"{each.join:.1f} s",
            f"{each.audit_processor:.0f} / {each.bare_processor:.0f} / {each.join_processor:.0f} s",
            f"{each.audit_megabytes:,.0f} MB", f"{each.bare_megabytes:,.0f} MB",
        )  # fmt: skip
    console.print(table)
    for one, two in made.steps():
        console.print(f"{_times(one, two):g} times the messages take {two.audit / one.audit:.1f} times as long.")
    for sentence in made.wrong():
        console.print(f"[bold red]missed[/] {sentence}")


def _times(one: Figures, two: Figures) -> float:
    """The number of messages of ``two`` relative to ``one``."""
    return two.messages / one.messages


def _name(each: Figures) -> str:
    return f"{each.messages:,}{' (one hot)' if each.hot else ''}"
