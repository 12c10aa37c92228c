"""One run from the empty database to the report: load, follow, replay with kills, compare."""

import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from pathlib import Path

import msgspec

from _routes import comparison, data, dump
from _routes.audit import Audit, audit, claimed, prepare
from _routes.children import Children
from _routes.configuration import Configuration
from _routes.crew import Crew
from _routes.drivers import DRIVERS
from _routes.plan import Plan, ReplicaPlan
from _routes.progress import Progress
from _routes.publishers import Publishers
from _routes.report import RelayRow, ReplicaRow, Report, Sabotaged, WriterRow
from pubsub_lib import Store
from pubsub_lib.errors import UsageError


class Run:
    """The state of one run. :meth:`execute` is called once; it raises PubSubError or OSError."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._expected: data.State = {}

    def execute(self) -> Report:
        """Execute the whole run. Blocks until the end."""
        with nullcontext() if self._plan.results is None else claimed(self._plan.results):
            return self._execute()

    def _execute(self) -> Report:
        plan = self._plan
        with ExitStack() as stack:
            store = stack.enter_context(Store(plan.url))
            if store.topics():
                raise UsageError("the database is not empty; give an empty one")
            if plan.results is not None:
                prepare(self._folder, self._progress)
            began = time.monotonic()
            group = stack.enter_context(DRIVERS[plan.driver].broker()) if plan.service else ""
            configuration = Configuration(plan, self._folder, group)
            publishers = stack.enter_context(Publishers(configuration, self._folder)) if plan.service else None
            children = stack.enter_context(Children(self._folder))
            crew = Crew(plan, self._folder, store, children, publishers, configuration, self._progress)
            routes, load_seconds = self._load(store)
            data.follow(self._expected, data.read(plan.changes, plan.max_changes))
            crew.start_publishers()
            crew.start_replicas()
            replay_began = time.monotonic()
            crew.replay()
            replay_seconds = time.monotonic() - replay_began
            self._progress.log("comparing every replica with the database")
            position = store.read_heads(()).store.position
            crew.finish(position)
            crew.end_publishers()
            if store.read_heads(()).store.position != position:
                raise UsageError("another process writes to the database; give an unused one")
            objects = comparison.snapshot(store.objects())
        shares = {name: written.of for name, written in crew.written.items()}
        return Report(
            database=plan.database,
            service_starts=publishers.service.starts if publishers is not None else 0,
            routes=routes,
            load_seconds=load_seconds,
            changes=sum(shares.values()),
            transactions=sum(-(-each // plan.write_size) for each in shares.values()),
            replay_seconds=replay_seconds,
            objects=len(objects),
            position=position,
            from_files=comparison.of_files(objects, self._expected, shares, _sessions(plan)),
            writers=[_writer_row(crew, name) for name in sorted(crew.written)],
            kills=crew.kills,
            planned_kills=len(plan.kills),
            unsent_means=DRIVERS[plan.driver].unsent,
            relays=_relay_rows(crew, publishers),
            replicas=[_replica_row(plan, crew, replica, objects, configuration) for replica in plan.replicas],
            sabotaged=_sabotaged(crew),
            audit=self._audited(),
            seconds=time.monotonic() - began,
        )

    def _audited(self) -> Audit | None:
        plan = self._plan
        if plan.results is None:
            return None
        return audit(plan.url, plan.results, plan.bound, self._folder, self._progress)

    def _load(self, store: Store) -> tuple[int, float]:
        """Load the routes. Returns their number, and the seconds of the transactions."""
        plan = self._plan
        total = plan.max_routes or data.count(plan.routes)
        number, seconds = 0, 0.0
        with self._progress.bar("loading routes", total):
            for part in data.batches(data.read(plan.routes, plan.max_routes), plan.load_size):
                began = time.monotonic()
                with store.transaction() as tx:
                    for route in part:
                        tx.create(route.table, route.key, route.value, topic=route.topic)
                seconds += time.monotonic() - began
                number += len(part)
                self._progress.at(number)
                data.follow(self._expected, part)
        return number, seconds


def _sessions(plan: Plan) -> comparison.Sessions:
    routes = list(data.read(plan.changes, plan.max_changes))
    found: dict[str, list[dict[str, object]]] = {}
    for index in range(plan.writers):
        for topic, number in Counter(each.topic for each in data.share(routes, index, plan.writers)).items():
            found.setdefault(topic, []).append({"updates": number, "writer": plan.writer(index)})
    return found


def _sabotaged(crew: Crew) -> Sabotaged | None:
    done = {name: finished.sabotaged for name, finished in crew.finished.items() if finished.sabotaged is not None}
    return next((Sabotaged(name, *which) for name, which in done.items()), None)


def _writer_row(crew: Crew, name: str) -> WriterRow:
    written, killed_at = crew.written[name], crew.killed_at.get(name)
    return WriterRow(name, written.of, killed_at, None if killed_at is None else written.resumed_at)


def _relay_rows(crew: Crew, publishers: Publishers | None) -> list[RelayRow]:
    relays = {} if publishers is None else publishers.relays
    return [RelayRow(name, relay.starts, _kills(crew, name)) for name, relay in relays.items()]


def _kills(crew: Crew, name: str) -> int:
    return sum(kill.victim == name for kill in crew.kills)


def _replica_row(
    plan: Plan, crew: Crew, replica: ReplicaPlan, objects: comparison.Objects, configuration: Configuration
) -> ReplicaRow:
    name = replica.name
    account, synced = msgspec.structs.asdict(crew.finished[name]), crew.synced[name]
    del account["sabotaged"]
    account["twice"] += crew.twice.get(name, 0)
    return ReplicaRow(
        name=name,
        polling=configuration.polls(replica),
        driver=DRIVERS[plan.driver].shown,
        topics=replica.topics,
        below_relays=bool(replica.parents),
        listened_to=configuration.listened_to(replica, crew.finished[name].publishers),
        kills=_kills(crew, name),
        sync_seconds=synced.seconds,
        resyncs=account["fulls"] - synced.fulls,
        from_database=comparison.of_replica(objects, replica.topics, dump.read(crew.dump(name))),
        **account,
    )
