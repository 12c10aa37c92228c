"""The database server around the model store: latency, locks, sessions, outages, and their errors at clients."""

import random
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from typing import TypeVar

from pubsub_lib.errors import ConditionFailed, OutcomeUnknown, StoreBusy, StoreUnavailable
from simulator.group import Attempt, InDoubt, Work
from simulator.history import History
from simulator.kernel import Await, Kernel, LocalClock, Sleep
from simulator.store import Commit, Ident, ModelStore, State, Verb

T = TypeVar("T")
IDLE_IN_TRANSACTION = 0.5
"""Seconds after which the server ends an idle session that holds locks."""
NO_TRIM = -1
LOST_AFTER = 0.3
"""Seconds until a client detects that the server is down."""


class Session:
    """A writer's open transaction."""

    def __init__(self, epoch: int, now: float) -> None:
        self.epoch = epoch
        self.touched = now
        self.open = True


class Database:
    """One server. Methods without ``yield`` act at once at the server; the generators add the latency of both ways."""

    def __init__(self, kernel: Kernel, store: ModelStore, history: History, count: Callable[[str], None]) -> None:
        self.kernel = kernel
        self.store = store
        self.history = history
        self.clock = LocalClock(kernel, 5000.0, 1.0)
        self.up = True
        self.slowness = 0.0
        self.hang_chance = 0.0
        self.stalled = False
        """The disk hangs: no client gets an answer, and then all get theirs at once. So answers of timed-out requests
        arrive while clients wait for later ones."""
        self.deadlock_chance = 0.0
        self.commit_loss_chance = 0.0
        self.readers = 0
        self.trimmed_on_read = NO_TRIM
        """Number of links that are kept when a client reads pages; NO_TRIM: reading does not trim."""
        self.blind: dict[str, None] = {}
        """Clients whose requests are lost."""
        self._count = count
        self._epoch = 0
        self._rng: random.Random = kernel.rng("database")
        self._fault_rng: random.Random = kernel.rng("database faults")
        self._locks: dict[object, Session] = {}

    def latency(self) -> float:
        """Seconds of one trip, half of a request."""
        wait = self._rng.uniform(0.001, 0.006)
        if self.slowness:
            self._count("db_slow")
            wait += self.slowness * self._fault_rng.random()
        if self.hang_chance and self._fault_rng.random() < self.hang_chance:
            self._count("db_slow")
            wait += self._fault_rng.uniform(0.5, 3.0)
        return wait

    def query(self, label: str, ask: Callable[[], T], client: str = "") -> Generator[Sleep | Await, None, T]:
        """One request of a client and its answer. Raises StoreUnavailable."""
        epoch = self._epoch
        yield Sleep(label + " asked", self.latency())
        if client in self.blind:
            self._count("blind")
            yield Sleep(label + " lost", LOST_AFTER)
            raise StoreUnavailable("the simulated database is out of reach")
        yield from self._reach(label, epoch)
        answer = ask()
        yield Sleep(label + " answered", self.latency())
        return answer

    def pages(self, label: str, ask: Callable[[], T], pages: int) -> Generator[Sleep | Await, None, T]:
        """A reading of several pages in one snapshot, which the first query takes."""
        epoch = self._epoch
        yield Sleep(label + " begun", self.latency())
        yield from self._reach(label, epoch)
        answer = ask()
        self.readers += 1
        try:
            for _ in range(pages):
                yield Sleep(label + " page", self.latency())
                yield from self._reach(label, epoch)
                if self.trimmed_on_read != NO_TRIM:
                    self.trim(self.trimmed_on_read)
        finally:
            self.readers -= 1
        yield Sleep(label + " read", self.latency())
        return answer

    def _reach(self, label: str, epoch: int) -> Generator[Sleep | Await, None, None]:
        if self.stalled:
            self._count("db_slow")
        while self.stalled:
            yield Sleep("stalled", self._fault_rng.uniform(0.01, 0.1))
        if not self.up or epoch != self._epoch:
            self._count("db_down")
            yield Sleep(label + " lost", LOST_AFTER)
            raise StoreUnavailable("the simulated database is down")

    # -- transactions ----------------------------------------------------------------------------------------------

    def transact(
        self, verbs: Sequence[Verb], origin: str, wall: Callable[[], float], nonce: int, serial: int
    ) -> Generator[Sleep | Await, None, Commit | None]:
        """The commit sequence: begin, lock the objects, check, counter, write, commit. Raises StoreUnavailable,
        StoreBusy (a deadlock), ConditionFailed, OutcomeUnknown."""
        yield from self.query("begin", lambda: None)
        session = Session(self._epoch, self.kernel.now)
        try:
            yield from self._lock_all(session, sorted({(verb.table, verb.key) for verb in verbs}))
            yield Sleep("before commit", self.latency())
            self._check(session)
            lost = self._fault_rng.random()
            if lost < self.commit_loss_chance:
                self._count("commit_lost")
                self._end(session)
                if lost < self.commit_loss_chance / 2:
                    self._write(verbs, origin, wall(), nonce, serial)
                yield Sleep("commit lost", LOST_AFTER)
                raise OutcomeUnknown("the connection was lost during COMMIT", nonce)
            commit = self._write(verbs, origin, wall(), nonce, serial)
        finally:
            self._end(session)
        yield Sleep("committed", self.latency())
        return commit

    def transact_together(
        self, works: Sequence[Work], wall: Callable[[], float], staged: Callable[[Sequence[Attempt]], None]
    ) -> Generator[Sleep | Await, None, list[Attempt]]:
        """The same sequence for several works in one transaction. Returns the answer to each; an error of the
        transaction is that of all. ``staged`` gets the answers before the COMMIT."""
        try:
            yield from self.query("begin", lambda: None)
            session = Session(self._epoch, self.kernel.now)
            try:
                yield from self._lock_all(session, sorted(ident for work in works for ident in work.idents))
                written_at = wall()
                attempts = self._stage(works, written_at)
                staged(attempts)
                yield Sleep("before group commit", self.latency())
                self._check(session)
                lost = self._fault_rng.random()
                if lost < self.commit_loss_chance:
                    self._count("commit_lost")
                    self._end(session)
                    if lost < self.commit_loss_chance / 2:
                        self._write_together(works, attempts, written_at)
                    yield Sleep("group commit lost", LOST_AFTER)
                    return [_in_doubt(work, each) for work, each in zip(works, attempts, strict=True)]
                self._write_together(works, attempts, written_at)
            finally:
                self._end(session)
        except (StoreUnavailable, StoreBusy) as error:
            return [Attempt(error=type(error)(str(error))) for _ in works]
        yield Sleep("group committed", self.latency())
        return attempts

    def _stage(self, works: Sequence[Work], written_at: float) -> list[Attempt]:
        """The answers to these works if they are committed now, one after the other; one that fails is taken out."""
        copy, attempts = ModelStore(self._rng), list[Attempt]()
        copy.state = self.store.backup()
        for work in works:
            try:
                attempts.append(Attempt(copy.commit(work.verbs, work.origin, written_at, work.nonce)))
            except ConditionFailed as error:
                attempts.append(Attempt(error=error))
        return attempts

    def _write_together(self, works: Sequence[Work], attempts: Sequence[Attempt], written_at: float) -> None:
        """The COMMIT of a group: the counter's lock was held since its works were executed."""
        commits = []
        for work, attempt in zip(works, attempts, strict=True):
            if attempt.commit is not None:
                commit = self.store.commit(work.verbs, work.origin, written_at, work.nonce)
                assert commit == attempt.commit, "another transaction was committed under the counter's lock"
                commits.append((commit, work.serial))
        self.history.committed_together(commits, self.kernel.now)
        if len(commits) > 1:
            self._count("group")
        for commit, _ in commits:
            self.kernel.trace("store", "committed", commit.point, [link.topic for link in commit.links])

    def _write(self, verbs: Sequence[Verb], origin: str, written_at: float, nonce: int, serial: int) -> Commit | None:
        commit = self.store.commit(verbs, origin, written_at, nonce)
        if commit is not None:
            self.history.committed(commit, self.kernel.now, serial)
            self.kernel.trace("store", "committed", commit.point, [link.topic for link in commit.links])
        return commit

    def _lock_all(self, session: Session, idents: Sequence[Ident]) -> Generator[Sleep | Await, None, None]:
        """Lock the objects, then the counter."""
        for ident in idents:
            yield from self._lock(session, ident, "lock")
        yield Sleep("locked", self.latency())
        if self._fault_rng.random() < self.deadlock_chance:
            self._count("deadlock")
            raise StoreBusy("the simulated database found a deadlock")
        yield from self._lock(session, "counter", "counter")

    def _lock(self, session: Session, name: object, label: str) -> Generator[Sleep | Await, None, None]:
        while True:
            yield Sleep(label, self.latency())
            self._check(session)
            holder = self._locks.get(name)
            if holder is None or not holder.open or holder is session:
                break
            if self.kernel.now - holder.touched > IDLE_IN_TRANSACTION:
                self._end(holder)
        self._locks[name] = session

    def _check(self, session: Session) -> None:
        if not self.up or session.epoch != self._epoch or not session.open:
            raise StoreUnavailable("the session was ended")
        session.touched = self.kernel.now

    def _end(self, session: Session) -> None:
        session.open = False

    # -- faults of the nemesis -------------------------------------------------------------------------------------

    def go_down(self) -> None:
        """End every session; requests are lost from now on."""
        self.up = False
        self._epoch += 1
        self._locks.clear()
        self.kernel.trace("store", "down")

    def come_up(self) -> None:
        """Answer again."""
        self.up = True
        self.kernel.trace("store", "up")

    def restore(self, backup: State, kind: str = "restore") -> None:
        """Remove everything since the backup. ``kind``: the fault that is counted."""
        self._epoch += 1
        self._locks.clear()
        self.store.restore(backup)
        self.history.restored(self.store, self.kernel.now)
        self._count(kind)
        self.kernel.trace("store", "restored", self.store.state.point)

    def restore_and_rewrite(self, backup: State, serial: Callable[[], int]) -> None:
        """Remove everything since the backup and write the same number of other changes at once: every head gets its
        former position, with another nonce. Links that were trimmed from the changelog are not rewritten.
        """
        undone = [link for link in self.store.state.links if link.point.position > backup.point.position]
        self.restore(backup, "same_position")
        for _, links in groupby(undone, lambda link: link.point):
            commit = self.store.rewrite(list(links))
            if commit is not None:
                self.history.committed(commit, self.kernel.now, serial())
                self.kernel.trace("store", "rewrote", commit.point)

    def trim(self, keep: int) -> None:
        """Shorten the changelog, also under readers."""
        if self.store.trim(keep):
            self._count("trim")
            self.history.trims += 1
            if self.readers:
                self._count("trim under a reader")
            self.kernel.trace("store", "trimmed", keep)


def _in_doubt(work: Work, attempt: Attempt) -> Attempt:
    """The answer to a work whose COMMIT got none."""
    if attempt.commit is None:
        return attempt
    return Attempt(error=InDoubt(work.nonce, attempt.commit.links[0].tx_prev))
