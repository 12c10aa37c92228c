"""The figures of a run, as data for JSON and as a table for people, and its failed checks."""

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
    "dupl.\ncalls",
    "holes",
    "syncs\ndelta\n/full",
    "p50\nms",
    "p99\nms",
)
"""Columns of the table. They are narrow, so that the table fits 80 columns."""


class WriterRow(msgspec.Struct, frozen=True):
    """One writer. ``killed_at``: lines that it had reported when it was killed; ``resumed_at``: the first line of its
    successor. The lines between the two were committed, but not handed over.
    """

    name: str
    changes: int
    killed_at: int | None
    resumed_at: int | None


class KillRow(msgspec.Struct, frozen=True):
    """One SIGKILL. ``lines``: updates that the writers had reported; ``position``: the changelog's head at that time.

    ``unsent``: changes up to that position that were certainly not sent; None without a service, which would send.
    """

    victim: str
    lines: int
    position: int
    unsent: int | None


class RelayRow(msgspec.Struct, frozen=True):
    """One relay."""

    name: str
    starts: int
    kills: int


class ReplicaRow(Account, frozen=True, kw_only=True):
    """One replica. For a killed replica the figures are of its second process, but ``twice`` is of both."""

    name: str
    polling: bool
    driver: str
    """The transport of the service, for people."""
    topics: tuple[str, ...]
    below_relays: bool
    listened_to: str
    """The name of the publisher, at the end."""
    kills: int
    sync_seconds: float
    resyncs: int
    """Full syncs after the first one."""
    from_database: Differences

    @property
    def verdict(self) -> str:
        """``differs`` or ``equal``."""
        return "differs" if self.from_database.number else "equal"

    @property
    def transport(self) -> str:
        """The transport's name for people."""
        return "polling" if self.polling else self.driver

    def broken(self) -> Iterator[str]:
        """A sentence for each failed check."""
        if self.from_database.number:
            yield f"{self.name} differs in {self.from_database}"
        if self.faults:
            yield f"{self.name} counted {self.faults:,} faults that must never happen"
        if self.twice:
            yield f"the handler of {self.name} was called twice for {self.twice:,} versions"
        if self.resyncs:
            yield f"{self.name} needed {self.resyncs:,} full syncs after its first"
        if self.notifications == 0:
            yield f"{self.name} received no notification, so it only polled"


class Sabotaged(msgspec.Struct, frozen=True):
    """The object that was corrupted in the memory of a replica."""

    replica: str
    table: str
    key: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a run that ended. Seconds are of the wall clock."""

    database: str
    service_starts: int
    """0 without a publisher-service."""
    routes: int
    load_seconds: float
    changes: int
    """Number of replayed lines of updates."""
    transactions: int
    replay_seconds: float
    objects: int
    """Number of objects in the database at the end, including the writers' progress."""
    position: int
    from_files: Differences
    """Differences between the database and the files."""
    writers: Sequence[WriterRow]
    kills: Sequence[KillRow]
    planned_kills: int
    unsent_means: str = "unsent"
    """What the ``unsent`` changes of a kill are called with this driver, for people."""
    relays: Sequence[RelayRow] = ()
    replicas: Sequence[ReplicaRow]
    sabotaged: Sabotaged | None = None
    audit: Audit | None = None
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether the database and all replicas hold the expected objects."""
        return not self.from_files.number and not any(row.from_database.number for row in self.replicas)

    def broken(self) -> list[str]:
        """A sentence for each failed check; empty when all checks passed."""
        found = []
        if self.from_files.number:
            found.append(f"the database differs from the files in {self.from_files}")
        if len(self.kills) != self.planned_kills:
            found.append(f"{len(self.kills)} processes were killed instead of {self.planned_kills}")
        found += [
            f"nothing was {self.unsent_means} when {kill.victim} was killed" for kill in self.kills if kill.unsent == 0
        ]
        found += [sentence for row in self.replicas for sentence in row.broken()]
        if self.audit is not None and self.audit.exit_code:
            found.append(f"the audit failed: {self.audit.sentence}")
        kills = {row.name: row.kills for row in self.relays} | {row.name: row.kills for row in self.replicas}
        for name, killed in kills.items():
            if self.audit is not None and not killed and self.audit.stopped.get(name):
                found.append(f"{self.audit.stopped[name]:,} changes never came to {name}, which was not killed")
        return found


def as_json(report: Report) -> str:
    """One JSON object, with the verdicts."""
    plain = msgspec.to_builtins(report)
    for row, shown in zip(report.replicas, plain["replicas"], strict=True):
        shown.update(verdict=row.verdict, transport=row.transport)
    whole = {**plain, "equal": report.equal, "broken": report.broken()}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def show(report: Report, console: Console) -> None:
    """Print the table and the sentences after it."""
    console.print(_table(report))

    def write(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    for kill in report.kills:
        unsent = "" if kill.unsent is None else f": {kill.unsent:,} committed changes were {report.unsent_means}"
        write(f"{kill.victim} was killed after {kill.lines:,} updates, at position {kill.position:,}{unsent}.")
    for writer in report.writers:
        if writer.killed_at is not None:
            write(
                f"{writer.name} was killed after COMMIT, after it reported {writer.killed_at:,} of its "
                f"{writer.changes:,} updates; the next process continued at {writer.resumed_at:,}."
            )
    write(
        f"Handlers were called {sum(row.calls for row in report.replicas):,} times, of these "
        f"{sum(row.twice for row in report.replicas):,} times again for the same version; "
        f"{sum(row.resyncs for row in report.replicas):,} full syncs after the first."
    )
    for relay in report.relays:
        write(f"{relay.name}, a relay, was started {_times(relay.starts)} and killed {_times(relay.kills)}.")
    for row in report.replicas:
        notified = "" if row.notifications is None else f"{row.notifications:,} notifications, "
        killed = " (* killed: of the second process)" if row.kills else ""
        write(
            f"{row.name}: {notified}first sync {row.sync_seconds:.1f} s after its start, {row.memory / 1e6:.0f} MB at "
            f"the end, longest latency {_ms(row.max_latency)} ms{killed}. At the end it listened to {row.listened_to}."
        )
    write(
        f"{report.routes:,} routes loaded in {report.load_seconds:.1f} s "
        f"({report.routes / report.load_seconds:,.0f}/s); "
        f"{report.changes:,} updates replayed in {report.replay_seconds:.1f} s "
        f"({report.changes / report.replay_seconds:,.0f}/s, {report.transactions:,} transactions) by "
        f"{len(report.writers)} writers; {report.seconds:.1f} s in all."
    )
    holds = "DIFFERS from the files" if report.from_files.number else "equals the files"
    write(f"The database has {report.objects:,} objects and {holds}.")
    if report.sabotaged is not None:
        done = report.sabotaged
        write(f"{done.key!r} of the table {done.table} was corrupted in the memory of {done.replica}.")
    if report.audit is not None:
        show_audit(report.audit, console)


def _table(report: Report) -> Table:
    table = Table(
        title=f"Replicas and database ({report.database}), compared object by object",
        box=SIMPLE_HEAD,
        padding=0,  # so that it fits into 80 columns
        pad_edge=False,
        caption="p50, p99: commit to handler, of changes written while no process was away",
    )
    for name in ("replica", "topics"):
        table.add_column(name, no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in report.replicas:
        style = "green" if row.verdict == "equal" else "bold red"
        table.add_row(
            f"{row.name}\n{row.listened_to if row.below_relays else row.transport}{' *' if row.kills else ''}",
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


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.0f}"
