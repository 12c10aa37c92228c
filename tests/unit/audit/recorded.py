"""A recorded session without faults, by real trackers, caches and journals, and ways to plant a fault into its records.

Every variant of the session is judged by what it changes: the recorded one has no finding.
"""

import functools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import Row
from tests.unit.audit.joined import BOUND, GRACE, WINDOW, World
from tests.unit.audit.joined_parts import Clock, Modelled
from tests.unit.audit.restored import with_three_replicas

Rows = list[Row]
COMMITS = 30


class Session(World):
    """A service and three replicas: of one topic, of everything, and one that polls two topics."""

    def _run(self, steps: int) -> None:
        self.keys = [("t0", "k0"), ("t0", "k1"), ("t1", "k2")]
        with_three_replicas(self)
        self._heal()
        for number in range(steps):
            self._write(self.senders[0], self.keys[number % 3])
            self._heal()
        self.clock.now += BOUND + 2 * GRACE + WINDOW
        for replica in self.replicas:
            replica.end()
        for sender in self.senders:
            sender.note.close()
        self.database.journal(self.folder)


def _database(seed: int, clock: Clock) -> Modelled:
    database = Modelled(seed, clock)
    database._history.store_id = bytes([seed]) * 16
    return database


@functools.cache
def session(seed: int = 1) -> tuple[Row, ...]:
    """The records of a session; each seed is another database."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        world = Session(seed, Path(folder), lambda clock: _database(seed, clock))
        world.run(COMMITS)
        return tuple(row for path in find([Path(folder)]).append for row in read(path))


def without(rows: Iterable[Row], which: Callable[[Row], bool]) -> Rows:
    """The journals as if these records had never been written: the numbers have no hole."""
    found: Rows = []
    gone: dict[str, int] = defaultdict(int)
    for row in sorted(rows, key=lambda each: (each.run, each.number)):
        if which(row):
            gone[row.run] += 1
        else:
            found.append(msgspec.structs.replace(row, number=row.number - gone[row.run]))
    assert gone
    return found


def lost(rows: Iterable[Row], which: Callable[[Row], bool]) -> Rows:
    """The journals without these records: the numbers show that they are missing."""
    rows = list(rows)
    found = [row for row in rows if not which(row)]
    assert len(found) < len(rows)
    return found


def changed(rows: Iterable[Row], which: Callable[[Row], bool], **columns: object) -> Rows:
    """The journals with other values in these records."""
    rows = list(rows)
    assert any(which(row) for row in rows)
    return [msgspec.structs.replace(row, **columns) if which(row) else row for row in rows]
