"""One run from the empty database to the report: load, follow, replay with kills, compare."""

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from _routes import comparison, data, dump
from _routes.children import Child, ChildError, Children
from _routes.messages import Finish, Finished, Followed, Message, Synced, Written
from _routes.plan import Plan, ReplicaTask, WriterTask
from _routes.progress import Progress
from _routes.report import ReplicaRow, Report, WriterRow
from pubsub_lib import Store
from pubsub_lib.errors import UsageError
from pubsub_lib.failpoints import VARIABLE


class Run:
    """The state of one run. :meth:`execute` is called once; it raises PubSubError or OSError."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._expected: data.State = {}
        self._written: dict[str, Written] = {}
        self._killed_at: dict[str, int] = {}
        self._synced: dict[str, Synced] = {}
        self._finished: dict[str, Finished] = {}
        self._kills: dict[str, int] = {}
        self._tasks: dict[str, ReplicaTask | WriterTask] = {}
        self._running: dict[str, Child] = {}

    def execute(self) -> Report:
        """Do everything. Blocks until the end."""
        began = time.monotonic()
        plan = self._plan
        with Store(plan.url) as store, Children(self._folder) as children:
            if store.topics():
                raise UsageError("the database is in use already; give an empty one")
            routes, load_seconds = self._load(store)
            changed = data.follow(self._expected, data.read(plan.changes, plan.most_changes))
            self._start_replicas(children, changed)
            self._until(children, lambda: len(self._synced) == len(plan.replicas))
            replay_began = time.monotonic()
            with self._progress.bar("replaying updates", self._start_writers(children)):
                self._until(children, self._all_written)
            replay_seconds = time.monotonic() - replay_began
            self._progress.say("comparing every replica with the database")
            position = self._finish(store, children)
            objects = comparison.snapshot(store.objects())
        shares = {name: written.of for name, written in self._written.items()}
        differences = comparison.of_files(objects, self._expected, shares)
        if differences.number:
            self._progress.say(f"{differences.number:,} objects differ from the files: {differences.example}")
        return Report(
            database=plan.database,
            routes=routes,
            load_seconds=load_seconds,
            changes=sum(shares.values()),
            transactions=sum(-(-each // plan.write_size) for each in shares.values()),
            replay_seconds=replay_seconds,
            objects=len(objects),
            position=position,
            as_input=not differences.number,
            writers=[self._writer_row(name) for name in sorted(self._written)],
            replicas=[self._replica_row(replica.name, objects) for replica in plan.replicas],
            seconds=time.monotonic() - began,
        )

    # -- the steps -----------------------------------------------------------------------------------------------

    def _load(self, store: Store) -> tuple[int, float]:
        """Load the routes; how many, and in how many seconds (those of the transactions)."""
        plan = self._plan
        total = plan.most_routes or data.count(plan.routes)
        number, seconds = 0, 0.0
        with self._progress.bar("loading routes", total):
            for part in data.batches(data.read(plan.routes, plan.most_routes), plan.load_size):
                began = time.monotonic()
                with store.transaction() as tx:
                    for route in part:
                        tx.create(route.table, route.key, route.value, topic=route.topic)
                seconds += time.monotonic() - began
                number += len(part)
                self._progress.at(number)
                data.follow(self._expected, part)
        return number, seconds

    def _start_replicas(self, children: Children, changed: Mapping[str, int]) -> None:
        plan = self._plan
        for index, replica in enumerate(plan.replicas):
            mine = sum(
                number for topic, number in changed.items() if not replica.topics or topic in replica.topics
            )
            die_at = mine // 3 if index == plan.killed_replica else 0
            if index == plan.killed_replica and not die_at:
                raise UsageError(
                    f"only {mine} changes are for {replica.name}, which is to be killed; take more"
                )
            task = ReplicaTask(replica.name, plan.url, replica.topics, plan.timing, die_at)
            self._start(children, task)

    def _start_writers(self, children: Children) -> int:
        """Start all writers; the number of lines that they will write together."""
        plan = self._plan
        routes = list(data.read(plan.changes, plan.most_changes))
        for index in range(plan.writers):
            mine = len(data.share(routes, index, plan.writers))
            transactions = -(-mine // plan.write_size)
            name = f"writer-{index + 1}"
            task = WriterTask(
                name, plan.url, str(plan.changes), plan.most_changes, index, plan.writers, plan.write_size
            )
            self._written[name] = Written(0, mine, 0)
            environment = {}
            if index == plan.killed_writer:
                if transactions < 2:
                    raise UsageError(f"only {mine} changes are for {name}, which is to be killed; take more")
                # In the middle of its work, and of a transaction: objects locked, counter taken, nothing committed.
                environment[VARIABLE] = f"writer.after_counter=kill@{transactions // 2 + 1}"
            self._start(children, task, environment)
        return len(routes)

    def _finish(self, store: Store, children: Children) -> int:
        """Let every replica reach the head and write its dump; the head's position."""
        plan = self._plan
        # A slow replica may still be behind the writers: it dies when it comes to its change.
        victim = plan.replicas[plan.killed_replica].name
        self._until(children, lambda: victim in self._kills and len(self._synced) == len(plan.replicas))
        position = store.read_heads([]).store.position
        for replica in plan.replicas:
            self._running[replica.name].finish(Finish(position, str(self._dump(replica.name)), plan.patience))
        self._until(children, lambda: len(self._finished) == len(plan.replicas))
        if store.read_heads([]).store.position != position:
            raise UsageError("somebody else writes to the database; give one that nobody uses")
        return position

    # -- what children say ---------------------------------------------------------------------------------------

    def _until(self, children: Children, done: Callable[[], bool]) -> None:
        while not done():
            child, message = children.hear(self._plan.patience)
            if message is None:
                self._ended(children, child)
            else:
                self._heard(child.name, message)

    def _heard(self, name: str, message: Message) -> None:
        match message:
            case Written():
                self._written[name] = message
                self._progress.at(sum(each.done for each in self._written.values()))
            case Synced():
                self._synced[name] = message
            case Finished():
                self._finished[name] = message
            case Followed():
                pass  # a sign of life

    def _ended(self, children: Children, child: Child) -> None:
        status = child.status()
        name = child.name
        if status == 0:
            return
        if status != -signal.SIGKILL or self._kills.get(name):
            raise ChildError(f"{name} ended with status {status}: {child.last_words()}")
        self._kills[name] = 1
        task = self._tasks[name]
        if isinstance(task, WriterTask):
            self._killed_at[name] = self._written[name].done
            self._progress.say(f"{name} was killed in the middle of a transaction; starting it again")
        else:
            del self._synced[name]
            self._progress.say(f"{name} was killed at its change {task.die_at:,}; starting it again")
            task = ReplicaTask(task.name, task.url, task.topics, task.timing)
        self._start(children, task)

    def _start(
        self, children: Children, task: ReplicaTask | WriterTask, environment: Mapping[str, str] | None = None
    ) -> None:
        self._tasks[task.name] = task
        self._running[task.name] = children.start(task, environment)

    def _all_written(self) -> bool:
        return all(each.done == each.of for each in self._written.values())

    # -- the report ----------------------------------------------------------------------------------------------

    def _dump(self, name: str) -> Path:
        return self._folder / f"{name}.dump"

    def _writer_row(self, name: str) -> WriterRow:
        written, killed_at = self._written[name], self._killed_at.get(name)
        return WriterRow(name, written.of, killed_at, None if killed_at is None else written.resumed_at)

    def _replica_row(self, name: str, objects: comparison.Objects) -> ReplicaRow:
        topics = next(replica.topics for replica in self._plan.replicas if replica.name == name)
        done, synced = self._finished[name], self._synced[name]
        differences = comparison.of_replica(objects, topics, dump.read(self._dump(name)))
        return ReplicaRow(
            name=name,
            topics=topics,
            kills=self._kills.get(name, 0),
            objects=done.objects,
            changes=done.changes,
            links=done.links,
            conflated=done.conflated,
            duplicates=done.duplicates,
            holes=done.holes,
            deltas=done.deltas,
            fulls=done.fulls,
            faults=done.faults,
            latency_p50=done.latency_p50,
            latency_p99=done.latency_p99,
            sync_seconds=synced.seconds,
            memory=done.memory,
            differences=differences.number,
            example=differences.example,
        )
