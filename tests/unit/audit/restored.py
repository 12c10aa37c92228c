"""Joined runs in whose middle the store is restored from a backup: real trackers, caches and journals. Before that, all
replicas are started again, so that their last listings, and the first syncs of their runs, are of the undone history.
"""

from pathlib import Path
from typing import Final

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.journal.reading import find, read
from tests.unit.audit.joined import BOUND, GRACE, TIMING, WINDOW, Replica, Sender, World
from tests.unit.audit.joined_parts import Clock, Modelled
from tests.unit.audit.joined_runs import SETTINGS
from tests.unit.audit.oracle import Oracle

RUNNING, AWAY, STOPPED, AGAIN = "running", "away", "stopped", "again"
HOW: Final = (RUNNING, AWAY, STOPPED, AGAIN)
"""All programs run; the database does not answer for longer than replicas wait for a publisher; all programs are
stopped; and the database is made again, empty, while all programs run."""


def with_three_replicas(world: World) -> None:
    """Begin a service, and replicas of one topic and of everything, and one that polls both topics."""
    world.topics, world.limits = ["t0", "t1"], Limits()
    world.replicas = []
    world.senders = [Sender(world, "s0")]
    world.replicas.append(Replica(world, "named", ["t0"], polls=False))
    world.replicas.append(Replica(world, "every", [ALL], polls=False))
    world.replicas.append(Replica(world, "polls", world.topics, polls=True))


class Restored(World):
    """A run in which the store loses its newest commits, and later ones pass its old position. No message is lost."""

    def __init__(self, seed: int, folder: Path, how: str, *, ends: bool = True) -> None:
        self.model: Modelled
        super().__init__(seed, folder, lambda clock: self._model(seed, clock))
        self.how, self.ends = how, ends
        self.backup, self.undone = 0, 0
        """The store's position in the backup, and that before the restore."""

    def _model(self, seed: int, clock: Clock) -> Modelled:
        self.model = Modelled(seed, clock)
        return self.model

    def _run(self, steps: int) -> None:
        self.keys = [("t0", "k0"), ("t1", "k1"), ("t0", "k2")]
        with_three_replicas(self)
        self._heal()
        self._go_on(steps)
        self.backup = 0 if self.how == AGAIN else self.position
        self._go_on(steps // 2)
        for replica in self.replicas:  # the next run's first sync ends above the backup
            replica.end()
            replica.begin()
        self._heal()
        self._go_on(steps // 2)
        self.undone = self.position
        self._restore()
        while self.position <= self.undone + steps:
            self._go_on(1)
        self.clock.now += BOUND + 2 * GRACE + WINDOW
        for replica in self.replicas if self.ends else ():
            replica.end()
        for replica in self.replicas if not self.ends else ():
            replica.journal.held.record_all(replica.replica_state)
            replica.note.close()
        for sender in self.senders:
            sender.note.close()
        self.database.journal(self.folder)

    @property
    def new(self) -> set[int]:
        """The nonces of the commits since the restore."""
        return {link.point.nonce for link in self.model._history.links if link.point.position > self.backup}

    @property
    def position(self) -> int:
        """The position of the store."""
        return self.model._history.point.position

    def _go_on(self, steps: int) -> None:
        """Commit, publish and deliver everything."""
        for _ in range(steps):
            self._write(self.senders[0], self.rng.choice(self.keys))
            self._heal()

    def _restore(self) -> None:
        if self.how == AWAY:
            for _ in range(round(2 * TIMING.stale_after)):
                for replica in self.replicas:
                    replica.hello_requests.clear()
                    replica.end_sync(well=False)
                self._elapse(1.0)
        if self.how == STOPPED:
            for replica in self.replicas:
                replica.end()
            for sender in self.senders:
                sender.note.close()
        self.clock.now += 60.0
        self.model._history = self.model._history.restored(self.backup, 77)
        if self.how == STOPPED:
            for sender in self.senders:
                sender.begin()
            for replica in self.replicas:
                replica.begin()
        self._heal()


def run(folder: Path, how: str, steps: int = 12, *, ends: bool = True) -> tuple[Restored, Oracle]:
    """One such run, and the oracle over its journals. Without ``ends`` the last runs of replicas have no listings."""
    folder.mkdir()
    world = Restored(20261129, folder, how, ends=ends)
    world.run(steps)
    rows = [row for path in find([folder]).append for row in read(path)]
    return world, Oracle(rows, SETTINGS.window, SETTINGS.grace, SETTINGS.bound, SETTINGS.silence)
