"""One run from the empty database to the report: start, write under faults, settle, compare, audit."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
from _databases import Database
from _routes import comparison, dump
from _routes.audit import Audit, audit, claimed
from _routes.progress import Progress
from _routes.writer import progress as stored_progress

from _chaos import brokers
from _chaos.calm import CALM, Calm
from _chaos.configuration import SOCKET, Configuration
from _chaos.crew import Crew
from _chaos.excuses import (
    ABSENT,
    Lies,
    Place,
    Unknown,
    unexplained_audit,
    unexplained_ends,
    unexplained_stops,
)
from _chaos.plan import KINDS, LIE, Fault, Kind, Plan
from _chaos.report import FaultRow, ReplicaRow, Report, WorkerRow
from _chaos.schedule import Schedule
from _chaos.starting import Starter, Storm, Writing
from _chaos.striking import Striking
from _chaos.wires import Wires
from pubsub_lib import Store
from pubsub_lib.audit.report.report import read_summary
from pubsub_lib.errors import PubSubError, UsageError

LOOK: Final = 0.1
"""Maximum number of seconds between two looks at the schedule."""

BOUND: Final = 60
"""Seconds within which a change must be in every replica, else the audit calls it late."""
NOT_KEPT: Final = (SOCKET, "audit", "artifacts-*", "blockmgr-*", "pubsub-audit-*", "spark-*", "*.so*")
"""Sockets, and files of Spark and Java."""


class Options(msgspec.Struct, frozen=True):
    """How a plan is executed. ``results``: a new folder for the tables of the audit; the files of a failed run are kept
    in a folder of this name with ``-run``. None: nothing is kept.
    """

    database: str
    """The name of the database, for people."""
    writing: Writing = Writing()
    storm: Storm = Storm()
    audited: bool = True
    bound: float = BOUND
    patience: float = 120.0
    results: Path | None = None
    sabotage: str = ""
    faketime: Path | None = None
    """The library libfaketime, for wrong clocks."""
    left_out: Mapping[Kind, str] = {}
    """Kinds of fault that this run cannot have, each with the reason."""


class Run:
    """The state of one run. :meth:`execute` is called once; it raises PubSubError or OSError."""

    def __init__(self, plan: Plan, options: Options, database: Database, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._options = options
        self._database = database
        self._folder = folder
        self._progress = progress
        results = options.results
        self._kept = None if results is None else results.with_name(f"{results.name}-run")

    def execute(self) -> Report:
        """Execute the whole run. Blocks until the end."""
        if self._kept is not None and self._kept.exists():
            raise UsageError(f"{self._kept} already exists; name a new folder")
        try:
            report = self._audited() if self._options.audited else self._execute(None)
        except (PubSubError, OSError):
            self._keep()
            raise
        if report.broken():
            self._keep()
        return report

    def _audited(self) -> Report:
        results = self._options.results or self._folder / "results"
        with claimed(results):
            return self._execute(results)

    def _keep(self) -> None:
        """Copy the files of a failed run beside the results."""
        if self._kept is not None:
            shutil.copytree(self._folder, self._kept, ignore=shutil.ignore_patterns(*NOT_KEPT))

    def _execute(self, results: Path | None) -> Report:
        plan, given, folder, url = self._plan, self._options, self._folder, self._database.url
        with ExitStack() as stack:
            store = stack.enter_context(Store(url))
            if store.topics():
                raise UsageError("the database is not empty; give an empty one")
            configuration = Configuration(plan.cast, folder)
            server, cast = self._database.server, plan.cast
            names = (*cast.service_names, *cast.worker_names, *cast.replica_names)
            broker = stack.enter_context(brokers.opened(cast.driver))
            server_port = 0 if server is None else server.port
            broker_port = 0 if broker is None else broker.port
            wires = stack.enter_context(
                Wires(configuration.ports, url, server_port, names, broker_port, cast.broker_users)
            )
            starter = Starter(
                plan, given.writing, given.storm, folder, stack, configuration, wires, given.sabotage
            )  # fmt: skip
            crew = Crew(starter, folder, given.patience)
            with self._progress.waiting("starting all processes"):
                crew.start()
            self._progress.log("every process works; the faults begin")
            striking = Striking(crew, starter, wires, server, given.faketime, given.left_out, broker)
            self._strike(crew, striking)
            with self._progress.waiting("all faults have ended; every participant works again"):
                receiving = [name for name in cast.replica_names if not cast.polls(name)]
                dead = crew.calm(Calm(cast.sender_names, cast.worker_names, receiving), CALM)
                striking.release()
            with self._progress.waiting("every replica handles the last changes"):
                crew.stop_workers()
                position = store.read_heads(()).store.position
                crew.finish_replicas(position)
                crew.end_services()
            if store.read_heads(()).store.position != position:
                raise UsageError("another process writes to the database; give an unused one")
            objects = comparison.snapshot(store.objects())
            stored = {name: stored_progress(store, name)[0] for name in crew.workers}
            cut_off = brokers.cut_off(cast.driver, broker)
        audited = None
        if results is not None:
            audited = audit(url, results, given.bound, folder, self._progress)
        return self._report(crew, striking, objects, position, stored, cut_off, dead, audited)

    def _strike(self, crew: Crew, striking: Striking) -> None:
        """Execute the planned faults while the workers write."""
        plan = self._plan
        schedule = Schedule(plan.faults)
        with self._progress.bar(f"{len(plan.faults):,} faults (seconds)", round(plan.seconds)):
            while (now := crew.now) < plan.seconds or schedule.next_at is not None:
                for step in schedule.due(now):
                    striking.execute(step, crew.now)
                ahead = plan.seconds if schedule.next_at is None else schedule.next_at
                crew.work(min(LOOK, max(0.0, ahead - crew.now)))
                self._progress.at(min(round(now), round(plan.seconds)))

    def _unexplained(self, audited: Audit, crew: Crew, striking: Striking) -> list[str]:
        """What the audit found and no planned fault explains."""
        folder = Path(audited.folder)
        found = read_summary(folder)
        restarted = [name for name, each in crew.replicas.items() if each.starts > 1]
        unknown = list(unknown_of(folder))
        lies = Lies(striking.struck[LIE], crew.lies, list(absent_of(folder)))
        sentences = unexplained_audit(
            found, unknown, self._plan, crew.began_at, striking.latest, self._options.left_out, lies
        )
        return sentences + unexplained_stops(audited.stopped, restarted)

    def _report(
        self,
        crew: Crew,
        striking: Striking,
        objects: comparison.Objects,
        position: int,
        stored: Mapping[str, int],
        cut_off: int,
        dead: Sequence[str],
        audited: Audit | None,
    ) -> Report:
        plan, figures = self._plan, crew.figures
        planned = Counter(fault.kind for fault in plan.faults)
        sabotaged = [each.sabotaged for each in crew.finished.values() if each.sabotaged is not None]
        return Report(
            seed=plan.seed,
            driver=plan.cast.driver,
            database=self._options.database,
            seconds=plan.seconds,
            plan=fingerprint(plan.faults),
            faults=[
                FaultRow(kind, planned[kind], striking.struck[kind], striking.absent[kind])
                for kind in KINDS
                if planned[kind]
            ],
            left_out=self._options.left_out,
            latest_step=striking.latest,
            commits_cut=striking.commits_cut,
            cut_off=cut_off,
            shutdown=crew.shutdown,
            objects=len(objects),
            position=position,
            changes=figures.changes,
            failed_attempts=figures.failed,
            deliveries=figures.deliveries,
            workers=[
                WorkerRow(name, plan.cast.service_of(name), each.starts, figures.acknowledged(name), stored[name])
                for name, each in crew.workers.items()
            ],
            dead=dead,
            replicas=[_replica_row(plan, crew, name, objects) for name in crew.replicas],
            services={name: each.starts for name, each in crew.services.items()},
            ended=crew.ended,
            unexplained=unexplained_ends(crew.ended, plan, striking.latest),
            sabotaged=sabotaged[0] if sabotaged else None,
            audit=audited,
            audit_problems=[] if audited is None else self._unexplained(audited, crew, striking),
        )


def unknown_of(folder: Path) -> Iterator[Unknown]:
    """The deliveries of an audit's tables whose verdict is ``unknown``. Raises OSError."""
    table = folder / "delivery"
    if table.exists():
        found = pq.read_table(table, columns=["name", "detail", "p"], filters=[("verdict", "=", "unknown")])
        for row in found.to_pylist():
            yield Unknown(row["name"], row["detail"], row["p"] / 1e6)


def absent_of(folder: Path) -> Iterator[tuple[Place, str]]:
    """The links that the changelog lacks by an audit's tables, each with its verdict. Raises OSError."""
    table = folder / "store"
    if table.exists():
        found = pq.read_table(table, columns=["topic", "position", "nonce", "verdict"])
        for row in found.to_pylist():
            if row["verdict"] in ABSENT:
                yield (row["topic"], row["position"], row["nonce"]), row["verdict"]


def fingerprint(faults: Sequence[Fault]) -> str:
    """The begin of a SHA-256 over the planned faults."""
    return hashlib.sha256(msgspec.json.encode(faults)).hexdigest()[:16]


def _replica_row(plan: Plan, crew: Crew, name: str, objects: comparison.Objects) -> ReplicaRow:
    figures, finished = crew.figures.replica(name), crew.finished[name]
    topics = plan.cast.topics_of(name)
    return ReplicaRow(
        name=name,
        polling=plan.cast.polls(name),
        topics=topics,
        starts=crew.replicas[name].starts,
        objects=finished.objects,
        deliveries=figures.deliveries,
        calls=figures.calls,
        twice=figures.twice,
        staleness=figures.staleness,
        latency=figures.latency,
        lies=figures.lies,
        undone=figures.undone,
        late=finished.late,
        from_database=comparison.of_replica(objects, topics, dump.read(crew.dump(name))),
    )
