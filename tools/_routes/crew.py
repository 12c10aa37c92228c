"""The processes of a run: start them, receive their messages, kill them at the planned moments, and restart them."""

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from _children import ChildError

from _routes import data
from _routes.children import Child, Children
from _routes.configuration import Configuration
from _routes.drivers import DRIVERS
from _routes.messages import Away, Finish, Finished, Followed, GoOn, Message, Synced, Written
from _routes.plan import SERVICE, Kill, Plan, ReplicaTask, Task, WriterTask
from _routes.progress import Progress
from _routes.publishers import Publishers
from _routes.report import KillRow
from _routes.service import Service
from _routes.writer import committed_after
from _routes.writer_tasks import HELD_BACK, killed_in, writer_task
from pubsub_lib import Store

LOOK = 0.1
"""Seconds between two polls of conditions that no message reports."""
HOLD = 2.0
"""Maximum number of seconds for which the service is paused until a writer has committed a change."""
HOLDING = 120.0
"""Maximum number of seconds for all attempts: the service may have been paused while it wrote to the database itself,
and writers wait for it then."""
ALL = 1_000_000
"""More transactions than any writer holds back."""
MARGIN = 0.25
"""Seconds before the absence of a process in which a written change may already depend on the process."""
SETTLE = 1.0
"""Seconds in which a sync ends, in addition to its wait."""


class Crew:
    """For one thread. Methods raise ChildError (a process fails, or none sends a message), StoreError, OSError."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        store: Store,
        children: Children,
        publishers: Publishers | None,
        configuration: Configuration,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._store = store
        self._children = children
        self._publishers = publishers
        self._configuration = configuration
        self._progress = progress
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, Child] = {}
        self._received_at = time.monotonic()
        self._held_back = HELD_BACK if plan.service else 0
        self._doomed: set[str] = set()
        """Names of processes that will be killed, or were killed and whose end was not received yet."""
        self._away: list[Away] = []
        self._synced_at: dict[str, float] = {}
        self._followed: dict[str, Followed] = {}
        self._at_end: set[str] = set()
        """Names of processes that ended with status 0."""
        self.written: dict[str, Written] = {}
        self.killed_at: dict[str, int] = {}
        """Number of lines that a writer had reported when it was killed."""
        self.synced: dict[str, Synced] = {}
        self.finished: dict[str, Finished] = {}
        self.twice: dict[str, int] = {}
        """Of killed replicas: repeated calls of their handlers for a version."""
        self.kills: list[KillRow] = []

    # -- the steps -----------------------------------------------------------------------------------------------

    def start_publishers(self) -> None:
        """Start the service, when the plan has one, and then the relays; wait until all are ready."""
        if self._publishers is not None:
            self._publishers.service.start()
            self._until(self._publishers.service.ready)
            for relay in self._publishers.relays.values():
                relay.start()
            for relay in self._publishers.relays.values():
                self._until(relay.ready)

    def start_replicas(self) -> None:
        """Start all replicas, and wait for the first sync of each."""
        for replica in self._plan.replicas:
            sabotage = replica.name == self._plan.sabotage
            self._start(ReplicaTask(replica.name, str(self._configuration.of(replica)), replica.topics, sabotage))
        self._until(lambda: len(self.synced) == len(self._plan.replicas))

    def replay(self) -> None:
        """Start all writers and wait until they have written everything; execute the planned kills meanwhile."""
        plan = self._plan
        victims = {kill.victim: kill.at for kill in plan.kills}
        routes = list(data.read(plan.changes, plan.max_changes))
        with self._progress.bar("replaying updates", len(routes)):
            for index in range(plan.writers):
                mine = len(data.share(routes, index, plan.writers))
                self._start_writer(index, mine, victims.get(plan.writer(index)))
            for kill in sorted(plan.kills, key=lambda kill: kill.at):
                if kill.victim not in self.written:  # a writer's own failpoint kills it
                    self._until(lambda at=kill.at: self._lines() >= at * len(routes))  # type: ignore[misc]
                    self._kill(kill)
            self._held_back = 0  # also for a writer that is started again
            for name in self.written:
                self._running[name].order(GoOn(ALL))
            self._until(self._all_written)

    def finish(self, position: int) -> None:
        """Let every replica reach this position, write its dump and end. Afterwards all writers have ended as well."""
        plan = self._plan
        self._until(lambda: not self._doomed and len(self.synced) == len(plan.replicas))
        for replica in plan.replicas:
            away = (*self._away, (0.0, self._synced_at[replica.name]))
            order = Finish(position, str(self.dump(replica.name)), plan.patience, away)
            self._running[replica.name].order(order)
        # Writers, too, because a normal end is the last record of a journal.
        self._until(lambda: self._at_end == set(self._running))

    def end_publishers(self) -> None:
        """End the relays and the service with SIGTERM; afterwards only this process uses the database."""
        if self._publishers is not None:
            self._publishers.end()

    def dump(self, replica: str) -> Path:
        """The file to which a replica writes its objects."""
        return self._folder / f"{replica}.dump"

    # -- killing -------------------------------------------------------------------------------------------------

    def _kill(self, kill: Kill) -> None:
        if self._publishers is None:
            self._note(kill.victim, None)
            self._kill_replica(kill.victim)
            return
        service, relay = self._publishers.service, self._publishers.relays.get(kill.victim)
        self._until(service.ready)
        began = time.time() - MARGIN
        unsent = self._hold(service)
        self._note(kill.victim, unsent)
        if kill.victim == SERVICE:
            service.kill()
            self._start_again(service)
        elif relay is not None:
            relay.kill()
            service.resume()
            self._start_again(relay)
        else:
            self._kill_replica(kill.victim)
            service.resume()
        self._was_away(began)
        if relay is not None:
            # Now the replicas below miss links, and the relay reads these from the service, which is killed later.
            back = self._away[-1][1]
            self._until(lambda: time.time() >= back)

    def _start_again(self, service: Service) -> None:
        service.start()
        self._until(service.ready)

    def _hold(self, service: Service) -> int:
        """Pause the service until changes were committed that it cannot have sent. Returns the number of changes."""
        all_wait = False
        end = time.monotonic() + HOLDING
        while time.monotonic() < end:
            service.pause()
            before = self._head()
            if all_wait:
                for name in self.written:
                    self._running[name].order(GoOn(1))
            self._until_head_after(before)
            unsent = self._head() - before
            if unsent:
                return unsent
            service.resume()
            # When the writers commit now, the paused service had blocked them; else they wait for a GoOn.
            self._until_head_after(before)
            all_wait = self._head() == before
        raise ChildError(
            "the workers committed nothing while the publisher-service was paused, so that its kill would test "
            "nothing; spread the replay over more seconds by --seconds"
        )

    def _until_head_after(self, position: int) -> None:
        end = time.monotonic() + HOLD
        self._until(lambda: self._head() > position or time.monotonic() > end)

    def _kill_replica(self, name: str) -> None:
        self._doomed.add(name)
        self._running[name].kill()

    def _was_away(self, began: float) -> None:
        """A process is back. The changes that its kill left unsent reach all replicas when they have read the holes."""
        timing = self._plan.timing
        settled = timing.message_delay_window + timing.sync_jitter + timing.sync_interval + SETTLE
        self._away.append((began, time.time() + settled))

    def _note(self, victim: str, unsent: int | None) -> None:
        self.kills.append(KillRow(victim, self._lines(), self._head(), unsent))
        shown = "" if unsent is None else f", with {unsent:,} committed changes {DRIVERS[self._plan.driver].unsent}"
        self._progress.log(f"{victim} was killed{shown}; starting it again")

    def _head(self) -> int:
        return self._store.read_heads(()).store.position

    # -- messages of children ------------------------------------------------------------------------------------

    def _until(self, done: Callable[[], bool]) -> None:
        self._received_at = time.monotonic()
        while not done():
            received = self._children.receive(LOOK)
            if received is None:
                if time.monotonic() > self._received_at + self._plan.patience:
                    raise ChildError(
                        f"no process has sent a message for {self._plan.patience:.0f} s; check that the database "
                        "answers"
                    )
                continue
            self._received_at = time.monotonic()
            child, message = received
            if message is None:
                self._ended(child)
            else:
                self._note_message(child.name, message)

    def _note_message(self, name: str, message: Message) -> None:
        match message:
            case Written():
                self.written[name] = message
                self._progress.at(self._lines())
            case Synced():
                self.synced[name] = message
                self._synced_at[name] = time.time()
            case Finished():
                self.finished[name] = message
            case Followed():
                self._followed[name] = message

    def _ended(self, child: Child) -> None:
        status, name = child.status(), child.name
        if status == 0:
            self._at_end.add(name)
            return
        if status != -signal.SIGKILL or name not in self._doomed:
            raise ChildError(f"{name} ended with status {status}: {child.last_words()}")
        self._doomed.remove(name)
        task = self._tasks[name]
        if isinstance(task, WriterTask):
            reported = self.written[name]
            self.killed_at[name] = reported.done
            assert reported.point is not None, "a writer is never killed in its first transaction"
            self._was_away(time.time() - MARGIN)  # later links of its topics wait for the link that was not handed over
            self._note(name, None if self._publishers is None else committed_after(self._store, name, reported.point))
            task = msgspec.structs.replace(task, held_back=self._held_back)
        else:
            del self.synced[name]
            followed = self._followed.pop(name, None)
            self.twice[name] = followed.twice if followed is not None else 0
        self._start(task)

    # -- small things --------------------------------------------------------------------------------------------

    def _start_writer(self, index: int, mine: int, kill_at: float | None) -> None:
        task = writer_task(self._plan, self._configuration, index, mine, self._held_back)
        environment = killed_in(self._plan, task, mine, kill_at)
        if environment:
            self._doomed.add(task.name)
        self.written[task.name] = Written(0, mine, 0)
        self._start(task, environment)

    def _start(self, task: Task, environment: Mapping[str, str] | None = None) -> None:
        self._tasks[task.name] = task
        self._running[task.name] = self._children.participate(task, environment)

    def _lines(self) -> int:
        return sum(each.done for each in self.written.values())

    def _all_written(self) -> bool:
        return all(each.done == each.of for each in self.written.values())
