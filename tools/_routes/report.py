"""The figures of a run, as data for JSON and as a table for people, and what of them must not be."""

from collections.abc import Iterator, Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from _routes.audit import Audit
from _routes.audit import show as show_audit
from _routes.comparison import Differences
from _routes.messages import Account

COLUMNS = (
    "objects",
    "changes\napplied",
    "dupli-\ncates",
    "told\ntwice",
    "holes",
    "syncs\ndelta\n/full",
    "p50\nms",
    "p99\nms",
)
"""Of the table, as narrow as 80 columns need."""


class WriterRow(msgspec.Struct, frozen=True):
    """One writer. ``killed_at``: lines that it had told of when it was killed; ``resumed_at``: where the next process
    went on. Between the two is what was committed, but not handed over.
    """

    name: str
    changes: int
    killed_at: int | None
    resumed_at: int | None


class KillRow(msgspec.Struct, frozen=True):
    """One SIGKILL. ``lines``: of all updates, those that writers had told of; ``position``: the changelog's head then.

    ``unsent``: changes up to that position that were certainly not sent; None where nothing is sent at all.
    """

    victim: str
    lines: int
    position: int
    unsent: int | None


class ReplicaRow(Account, frozen=True, kw_only=True):
    """One replica; of a killed one the process that was started after it, but ``twice`` is of both."""

    name: str
    polling: bool
    topics: tuple[str, ...]
    kills: int
    sync_seconds: float
    resyncs: int
    """Full syncs after the first one."""
    from_database: Differences

    @property
    def verdict(self) -> str:
        """In one word."""
        return "differs" if self.from_database.number else "equal"

    @property
    def transport(self) -> str:
        """What people call it."""
        return "polling" if self.polling else "ZeroMQ"

    def broken(self) -> Iterator[str]:
        """What must not be, in words."""
        if self.from_database.number:
            yield f"{self.name} differs in {self.from_database}"
        if self.faults:
            yield f"{self.name} counted {self.faults:,} faults that must never happen"
        if self.twice:
            yield f"{self.name} was told {self.twice:,} versions twice"
        if self.resyncs:
            yield f"{self.name} needed {self.resyncs:,} full syncs after its first"


class Sabotaged(msgspec.Struct, frozen=True):
    """The object that was corrupted in the memory of a replica."""

    replica: str
    table: str
    key: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run that ended. Seconds are of the wall clock."""

    database: str
    service_starts: int
    """0: there was no publisher-service."""
    routes: int
    load_seconds: float
    changes: int
    """Lines of updates that were replayed."""
    transactions: int
    replay_seconds: float
    objects: int
    """Objects in the database at the end, those that keep the writers' progress included."""
    position: int
    from_files: Differences
    """Between the database and what the files say."""
    writers: Sequence[WriterRow]
    kills: Sequence[KillRow]
    planned_kills: int
    replicas: Sequence[ReplicaRow]
    sabotaged: Sabotaged | None = None
    audit: Audit | None = None
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether everything holds what it should hold."""
        return not self.from_files.number and not any(row.from_database.number for row in self.replicas)

    def broken(self) -> list[str]:
        """What must not be, in words; nothing when the promise held."""
        found = []
        if self.from_files.number:
            found.append(f"the database differs from the files in {self.from_files}")
        if len(self.kills) != self.planned_kills:
            found.append(f"{len(self.kills)} processes were killed where {self.planned_kills} were to be")
        found += [f"nothing was unsent when {kill.victim} was killed" for kill in self.kills if kill.unsent == 0]
        found += [sentence for row in self.replicas for sentence in row.broken()]
        if self.audit is not None and self.audit.exit_code:
            found.append(f"the audit says: {self.audit.sentence}")
        for row in self.replicas:
            if self.audit is not None and not row.kills and self.audit.stopped.get(row.name):
                found.append(f"{self.audit.stopped[row.name]:,} changes never came to {row.name}, which was not killed")
        return found


def as_json(report: Report) -> str:
    """One object, with the verdicts spelt out."""
    plain = msgspec.to_builtins(report)
    for row, shown in zip(report.replicas, plain["replicas"], strict=True):
        shown.update(verdict=row.verdict, transport=row.transport)
    whole = {**plain, "equal": report.equal, "broken": report.broken()}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def show(report: Report, console: Console) -> None:
    """The table and the sentences around it."""
    console.print(_table(report))

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    for kill in report.kills:
        unsent = "" if kill.unsent is None else f": {kill.unsent:,} committed changes were unsent"
        say(f"{kill.victim} was killed after {kill.lines:,} updates, at position {kill.position:,}{unsent}.")
    for writer in report.writers:
        if writer.killed_at is not None:
            say(
                f"{writer.name} was killed after COMMIT, having told of {writer.killed_at:,} of its "
                f"{writer.changes:,} updates; the next process went on at {writer.resumed_at:,}."
            )
    say(
        f"Handlers were called {sum(row.calls for row in report.replicas):,} times, of these "
        f"{sum(row.twice for row in report.replicas):,} for a version that they had heard of; "
        f"{sum(row.resyncs for row in report.replicas):,} full syncs after the first."
    )
    for row in report.replicas:
        say(
            f"{row.name}: first sync {row.sync_seconds:.1f} s after its start, {row.memory / 1e6:.0f} MB at the end, "
            f"longest latency {_ms(row.max_latency)} ms{' (* killed: of the second process)' if row.kills else ''}."
        )
    say(
        f"{report.routes:,} routes loaded in {report.load_seconds:.1f} s "
        f"({report.routes / report.load_seconds:,.0f}/s); "
        f"{report.changes:,} updates replayed in {report.replay_seconds:.1f} s "
        f"({report.changes / report.replay_seconds:,.0f}/s, {report.transactions:,} transactions) by "
        f"{len(report.writers)} writers; {report.seconds:.1f} s in all."
    )
    holds = "DIFFERS from what the files say" if report.from_files.number else "holds exactly what the files say"
    say(f"The database has {report.objects:,} objects and {holds}.")
    if report.sabotaged is not None:
        done = report.sabotaged
        say(f"{done.key!r} of the table {done.table} was corrupted in the memory of {done.replica}.")
    if report.audit is not None:
        show_audit(report.audit, console)


def _table(report: Report) -> Table:
    table = Table(
        title=f"Replicas and database ({report.database}), compared object by object",
        box=SIMPLE_HEAD,
        padding=0,  # so that it fits into 80 columns
        pad_edge=False,
        caption="p50, p99: commit to handler, of what was written while nothing was away",
    )
    for name in ("replica", "topics"):
        table.add_column(name, no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in report.replicas:
        style = "green" if row.verdict == "equal" else "bold red"
        table.add_row(
            f"{row.name}\n{row.transport}{' *' if row.kills else ''}",
            "\n".join(row.topics) or "all",
            f"{row.objects:,}",
            f"{row.changes:,}",
            f"{row.duplicates:,}",
            f"{row.twice:,}",
            f"{row.holes:,}",
            f"{row.deltas}/{row.fulls}",
            _ms(row.latency_p50),
            _ms(row.latency_p99),
            f"[{style}]{row.verdict}[/]",
        )
    return table


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.0f}"
