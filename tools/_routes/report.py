"""The figures of a run, as data for JSON and as a table for people."""

from collections.abc import Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

COLUMNS = (
    "objects",
    "changes\napplied",
    "dropped\nduplic.",
    "holes",
    "syncs\ndelta\n/full",
    "latency\np50 ms",
    "\np99 ms",
)
"""Of the table; the latency is that from commit to handler."""


class WriterRow(msgspec.Struct, frozen=True):
    """One writer. ``killed_at``: lines that were committed when it was killed; ``resumed_at``: where it went on."""

    name: str
    changes: int
    killed_at: int | None
    resumed_at: int | None


class ReplicaRow(msgspec.Struct, frozen=True):
    """One replica; of a killed one the process that was started after it. Times in seconds, memory in bytes."""

    name: str
    topics: tuple[str, ...]
    kills: int
    objects: int
    changes: int
    links: int
    conflated: int
    duplicates: int
    holes: int
    deltas: int
    fulls: int
    faults: int
    latency_p50: float | None
    latency_p99: float | None
    sync_seconds: float
    memory: int
    differences: int
    example: str
    """One object that differs, in words; "" when none does."""

    @property
    def verdict(self) -> str:
        """In one word."""
        return "equal" if not self.differences else "differs"


class Report(msgspec.Struct, frozen=True):
    """Everything about a run that ended. Seconds are of the wall clock."""

    database: str
    routes: int
    load_seconds: float
    changes: int
    """Lines of updates that were replayed."""
    transactions: int
    replay_seconds: float
    objects: int
    """Objects in the database at the end, those that keep the writers' progress included."""
    position: int
    as_input: bool
    """The database holds exactly what the files say."""
    writers: Sequence[WriterRow]
    replicas: Sequence[ReplicaRow]
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether everything is as it should be."""
        return self.as_input and not any(row.differences or row.faults for row in self.replicas)


def as_json(report: Report) -> str:
    """One object, with the verdicts spelt out."""
    plain = msgspec.to_builtins(report)
    for row, shown in zip(report.replicas, plain["replicas"], strict=True):
        shown["verdict"] = row.verdict
    return msgspec.json.format(msgspec.json.encode({**plain, "equal": report.equal}), indent=2).decode()


def show(report: Report, console: Console) -> None:
    """The table and the sentences around it."""
    table = Table(
        title=f"Replicas and database ({report.database}), compared object by object",
        box=SIMPLE_HEAD,
        padding=0,  # so that it fits into 80 columns
        pad_edge=False,
    )
    for name in ("replica", "topics"):
        table.add_column(name, no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in report.replicas:
        style = "green" if row.verdict == "equal" else "bold red"
        table.add_row(
            row.name + (" *" if row.kills else ""),
            "\n".join(row.topics) or "all",
            f"{row.objects:,}",
            f"{row.changes:,}",
            f"{row.duplicates:,}",
            f"{row.holes:,}",
            f"{row.deltas}/{row.fulls}",
            _ms(row.latency_p50),
            _ms(row.latency_p99),
            f"[{style}]{row.verdict}[/]",
        )
    console.print(table)

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    for row in report.replicas:
        say(f"{row.name}: first sync {row.sync_seconds:.1f} s after its start, {row.memory / 1e6:.0f} MB at the end.")
    for row in report.replicas:
        if row.kills:
            say(f"* {row.name} was killed; the figures are those of the process started after it.")
    for writer in report.writers:
        if writer.killed_at is not None:
            say(
                f"{writer.name} was killed inside a transaction, after {writer.killed_at:,} of its "
                f"{writer.changes:,} changes; the next process went on at {writer.resumed_at:,}."
            )
    say(
        f"{report.routes:,} routes loaded in {report.load_seconds:.1f} s "
        f"({report.routes / report.load_seconds:,.0f}/s); "
        f"{report.changes:,} changes replayed in {report.replay_seconds:.1f} s "
        f"({report.changes / report.replay_seconds:,.0f}/s, {report.transactions:,} transactions) by "
        f"{len(report.writers)} writers; {report.seconds:.1f} s in all."
    )
    holds = "holds exactly what the files say" if report.as_input else "DIFFERS from what the files say"
    say(f"The database has {report.objects:,} objects and {holds}.")
    for row in report.replicas:
        if row.example:
            say(f"{row.name}: {row.differences:,} differ, for example {row.example}")
        if row.faults:
            say(f"{row.name}: {row.faults:,} faults were counted that must never happen")


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.0f}"
