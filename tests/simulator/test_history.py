"""The true history knows which transactions are in one history twice."""

import random

from simulator.history import History
from simulator.store import Commit, ModelStore, Verb

SERIAL = 7


class Bench:
    """A store and its true history."""

    def __init__(self) -> None:
        self.store = ModelStore(random.Random(0))
        self.history = History()
        self._values = 0

    def write(self, serial: int) -> Commit:
        """One transaction with this serial."""
        self._values += 1
        commit = self.store.commit([Verb("set", "t", "k", b"%d" % self._values)], "", 0.0)
        assert commit is not None
        self.history.committed(commit, 0.0, serial)
        return commit


def test_transaction_that_is_written_again_is_in_one_history_twice() -> None:
    bench = Bench()
    bench.write(SERIAL)
    bench.write(SERIAL + 1)
    assert bench.history.repeated == 0
    bench.write(SERIAL)
    assert bench.history.repeated == SERIAL


def test_transaction_that_was_undone_may_be_written_again() -> None:
    bench = Bench()
    before = bench.store.backup()
    bench.write(SERIAL)
    bench.store.restore(before)
    bench.history.restored(bench.store, 1.0)
    bench.write(SERIAL)
    assert bench.history.repeated == 0
    bench.write(SERIAL)
    assert bench.history.repeated == SERIAL, "the second time is not excused by the undone first"


def test_backup_that_holds_an_undone_transaction_does_not_repeat_it() -> None:
    bench = Bench()
    before = bench.store.backup()
    bench.write(SERIAL)
    after = bench.store.backup()
    for backup in (before, after):
        bench.store.restore(backup)
        bench.history.restored(bench.store, 1.0)
    bench.write(SERIAL)
    assert bench.history.repeated == 0


def test_restore_that_keeps_a_transaction_excuses_no_repetition() -> None:
    bench = Bench()
    bench.write(SERIAL)
    backup = bench.store.backup()
    bench.write(SERIAL + 1)
    bench.store.restore(backup)
    bench.history.restored(bench.store, 1.0)
    bench.write(SERIAL)
    assert bench.history.repeated == SERIAL
