"""The comparison of this host's clock with the writers', by way of the database's clock."""

from time import time_ns

import pytest
from sqlalchemy import Connection

from pubsub_lib.store import Store, clock_comparison

HOUR = 3_600_000_000
SECOND = 1_000_000


def move(monkeypatch: pytest.MonkeyPatch, micros: int) -> None:
    """Set the clock of this host, as the comparison sees it, ahead."""
    monkeypatch.setattr(clock_comparison, "time_ns", lambda: time_ns() + micros * 1000)


def write(store: Store) -> float:
    """Commit a transaction; returns the time of its commit."""
    with store.transaction() as tx:
        tx.set("lport", "a", {}, topic="t")
    (link,) = store.inspect.newest(1)
    return link.written_at


def time_of_the_writers(store: Store, ahead: int) -> int:
    """The present time by the writers' clock, of a host whose clock is ahead."""
    found = store.inspect.clock()
    assert found is not None
    assert found.origin == ""
    return time_ns() // 1000 + ahead - found.ahead


@pytest.mark.parametrize("ahead", [0, HOUR, -HOUR])
def test_clock_is_compared_with_that_of_the_writers(store: Store, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    assert store.inspect.clock() is None
    written = write(store)
    move(monkeypatch, ahead)
    assert abs(time_of_the_writers(store, ahead) - written * 1e6) < 30 * SECOND


def test_newest_commit_gives_the_time_of_a_standby(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def standby(_: Connection) -> bool:
        return False

    monkeypatch.setattr(clock_comparison, "_has_the_clock_of_commits", standby)
    write(store)
    written = write(store)
    move(monkeypatch, HOUR)
    assert 0 <= time_of_the_writers(store, HOUR) - round(written * 1e6) < 10 * SECOND
