"""The report of a run: tables for people, or JSON; and the exit code."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from _routes import audit as audits
from _routes.audit import Audit
from _routes.comparison import Differences
from _routes.drivers import DRIVERS
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from _chaos.crew import Ended
from _chaos.plan import KINDS, LIE, ZMQ, Kind

KEPT: Final = 0
DIFFERS: Final = 1
AUDITED: Final = 4
ENDED: Final = 5


class FaultRow(msgspec.Struct, frozen=True):
    """One kind of fault. ``absent``: the victim did not run when the fault was due, or the process that is the fault
    was not ready before its end.
    """

    kind: str
    planned: int
    struck: int
    absent: int


class ReplicaRow(msgspec.Struct, frozen=True):
    """One replica: all its processes together. Times in seconds."""

    name: str
    polling: bool
    topics: Sequence[str]
    starts: int
    objects: int
    deliveries: int
    calls: int
    twice: int
    staleness: float
    latency: float
    lies: int
    """Calls of the handler for objects that were never committed."""
    undone: int
    """Repeated calls of the handler for a version that a changed history explains."""
    late: str
    from_database: Differences

    def broken(self) -> list[str]:
        """A sentence for each failed check."""
        found = []
        if self.from_database.number:
            found.append(f"{self.name} differs from the database in {self.from_database}")
        if self.late:
            found.append(f"{self.name} has not handled every change: {self.late}")
        if self.twice:
            found.append(f"the handler of {self.name} was called {self.twice} times again for a version")
        return found


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker. ``acknowledged`` and ``stored``: the number of its transactions by its reports and in the store."""

    name: str
    service: str
    starts: int
    acknowledged: int
    stored: int

    def broken(self) -> list[str]:
        """A sentence for each failed check."""
        if not self.acknowledged:
            return [f"no transaction of {self.name} was acknowledged"]
        if self.stored >= self.acknowledged:
            return []
        return [f"{self.name} committed {self.acknowledged} transactions, the store has {self.stored}"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    seed: int
    driver: str = ZMQ
    """Of services and replicas, by the value of ``--driver``."""
    database: str
    seconds: float
    plan: str
    """SHA-256 of the planned faults, 16 hex digits."""
    faults: Sequence[FaultRow]
    left_out: Mapping[Kind, str]
    """Kinds of fault that this run cannot have, each with the reason."""
    latest_step: float
    """Seconds by which the latest begin or end of a fault came after its time."""
    shutdown: float = 0.0
    """Seconds in which all services ended after SIGTERM, one after the other."""
    commits_cut: int = 0
    """Connections that were cut at COMMIT by faults of the kind ``commit``."""
    cut_off: int = 0
    """Connections of slow consumers that the broker ended."""
    objects: int
    position: int
    changes: int
    failed_attempts: int
    deliveries: int
    dead: Sequence[str] = ()
    """What did not work again after the last fault, one sentence each."""
    workers: Sequence[WorkerRow]
    replicas: Sequence[ReplicaRow]
    services: Mapping[str, int]
    """Number of starts."""
    ended: Sequence[Ended]
    unexplained: Sequence[Ended]
    """Those of ``ended`` that no fault explains."""
    sabotaged: tuple[str, str] | None
    audit: Audit | None
    audit_problems: Sequence[str] = ()
    """What the audit found and no planned fault explains."""

    @property
    def number(self) -> int:
        """The number of faults that struck."""
        return sum(row.struck for row in self.faults)

    def broken(self) -> list[tuple[int, str]]:
        """The exit code and a sentence for each failed check, the most important first."""
        found = [(DIFFERS, sentence) for row in self.replicas for sentence in row.broken()]
        if not any(row.struck for row in self.faults if row.kind == LIE):
            # Only a lie changes the history here: no database of a run loses commits.
            found += [
                (DIFFERS, f"the handler of {row.name} was called {row.undone} times again after a changed history")
                for row in self.replicas
                if row.undone
            ]
        found += [(DIFFERS, sentence) for row in self.workers for sentence in row.broken()]
        found += [(DIFFERS, sentence) for sentence in self.dead]
        found += [(AUDITED, f"the audit: {problem}") for problem in self.audit_problems]
        found += [
            (ENDED, f"{each.name} ended by itself after {each.at:.1f} s with status {each.status}: {each.sentence}")
            for each in self.unexplained
        ]
        return found


def as_json(report: Report) -> str:
    """One JSON object."""
    checks = [sentence for _, sentence in report.broken()]
    found: dict[str, Any] = {**msgspec.to_builtins(report), "number_of_faults": report.number, "broken": checks}
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def show(report: Report, console: Console) -> None:
    """Print the tables and the sentences after them."""
    console.print(_table("Faults", ("kind", "what", "planned", "struck", "absent"), 2, [
        (row.kind, KINDS[row.kind], row.planned, row.struck, row.absent) for row in report.faults  # type: ignore[index]
    ]))  # fmt: skip
    console.print(_table(
        "Replicas",
        ("name", "transport", "starts", "objects", "deliveries", "staleness s", "latency s", "differences"), 2,
        [(row.name, "polling" if row.polling else DRIVERS[report.driver].shown, row.starts, row.objects, row.deliveries,
          f"{row.staleness:.2f}", f"{row.latency:.2f}", row.from_database.number) for row in report.replicas],
    ))  # fmt: skip

    def write(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    for kind, reason in report.left_out.items():
        write(f"Left out: {kind} ({reason}).")
    starts = sum(report.services.values()) + sum(row.starts for row in report.workers)
    starts += sum(row.starts for row in report.replicas)
    write(
        f"Seed {report.seed} (plan {report.plan}), {report.database}, {report.seconds:g} s: {report.number:,} faults, "
        f"{starts:,} starts of processes; a fault began or ended at most {report.latest_step:.1f} s late."
    )
    if report.commits_cut:
        write(f"{report.commits_cut} connections were cut at COMMIT.")
    if report.cut_off:
        write(f"{report.cut_off} connections of slow consumers were cut off by the broker.")
    lies = sum(row.lies for row in report.replicas)
    if lies:
        write(f"Handlers were called {lies:,} times for false changes and their corrections.")
    undone = sum(row.undone for row in report.replicas)
    if undone:
        write(f"Handlers were called {undone:,} times again for a version, after a notice of a changed history.")
    longest = max(row.staleness for row in report.replicas)
    write(
        f"{report.changes:,} changes committed ({report.failed_attempts:,} attempts failed), {report.objects:,} "
        f"objects at the end; {report.deliveries:,} deliveries; longest staleness {longest:.1f} s; the services "
        f"ended in {report.shutdown:.1f} s."
    )
    for each in report.ended:
        write(f"Ended by itself: {each.name} after {each.at:.1f} s with status {each.status}: {each.sentence}")
    if report.audit is not None:
        audits.show(report.audit, console)
        if report.audit.exit_code and not report.audit_problems:
            write(
                "The planned faults explain the audit's exit code: lies send what was never committed, full disks lose "
                "records, and a kill may cut one."
            )
    write("Every check passed." if not report.broken() else "A check failed.")


def _table(title: str, columns: Sequence[str], text: int, rows: Sequence[Sequence[object]]) -> Table:
    """A table whose first ``text`` columns are texts, and the others numbers."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(columns):
        table.add_column(name, justify="left" if at < text else "right")
    for row in rows:
        table.add_row(*(f"{each:,}" if isinstance(each, int) else str(each) for each in row))
    return table
