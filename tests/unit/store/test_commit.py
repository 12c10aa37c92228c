"""COMMIT without an answer (rule S5), in one process: the driver's commit fails before or after it took effect.

``tests/e2e/test_store_commit_lost.py`` does the same on the wire.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import exc

from pubsub_lib.errors import NotFound, OutcomeUnknown, StoreFull
from pubsub_lib.store import Store, StoreSettings
from pubsub_lib.store.executor import OwnTransaction
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener


@contextmanager
def commits(store: Store, *behaviours: Callable[[Callable[[], None]], None]) -> Iterator[list[int]]:
    """Replace the writers' next COMMITs by ``behaviours``; later ones are normal."""
    left, calls = list(behaviours), [0]
    original = OwnTransaction.commit

    def commit(transaction: OwnTransaction) -> None:
        if transaction._engine is not store._writers:
            original(transaction)
            return
        calls[0] += 1
        try:
            if left:
                left.pop(0)(lambda: original(transaction))
            else:
                original(transaction)
        except BaseException:
            transaction._drop()
            raise

    OwnTransaction.commit = commit  # type: ignore[assignment, method-assign]
    try:
        yield calls
    finally:
        OwnTransaction.commit = original  # type: ignore[method-assign]


def lost() -> exc.OperationalError:
    return exc.OperationalError("COMMIT", None, OSError("connection reset"), connection_invalidated=True)


def lost_before(_commit: Callable[[], None]) -> None:
    raise lost()


def lost_after(commit: Callable[[], None]) -> None:
    commit()
    raise lost()


def test_history_commit_lost_before_its_effect_is_run_again(store: Store) -> None:
    with commits(store, lost_before), store.transaction() as tx:
        tx.create("t", "k", 1)
    assert tx.commit is not None
    assert assert_consistent(store) == 1


def test_history_commit_lost_after_its_effect_is_not_run_again(store: Store) -> None:
    with commits(store, lost_after) as calls, store.transaction() as tx:
        tx.create("t", "k", 1)
    assert tx.commit is not None
    assert tx.commit.point == store.read_heads([]).store
    assert calls == [1]
    assert assert_consistent(store) == 1


def test_commit_lost_twice_raises_outcome_unknown(store: Store) -> None:
    seen: list[object] = []
    store.on_commit(seen.append)
    with commits(store, lost_before, lost_after), store.transaction() as tx:
        tx.create("t", "k", 1)
    assert assert_consistent(store) == 1
    assert len(seen) == 1


@pytest.mark.parametrize("other_topic", [False, True])
def test_lost_commit_is_found_behind_later_transactions(other_topic: bool, open_store: Opener) -> None:
    store, other = open_store(), open_store()

    def lost_and_overtaken(commit: Callable[[], None]) -> None:
        lost_after_others(commit)
        raise lost()

    def lost_after_others(commit: Callable[[], None]) -> None:
        commit()
        with other.transaction() as tx:
            tx.set("t", "other", 1, topic="other" if other_topic else None)

    with commits(store, lost_and_overtaken), store.transaction() as tx:
        tx.create("t", "k", 1)
    assert tx.commit is not None
    assert assert_consistent(store) == 2


@pytest.mark.parametrize("sizes", [[1], [2], [1, 1], [1, 2, 1]])
def test_lost_commit_is_run_again_when_another_took_its_position(sizes: list[int], open_store: Opener) -> None:
    """``sizes``: the changes of each transaction in between; the first one takes the lost commit's position."""
    store, other = open_store(), open_store()

    def lost_and_taken(commit: Callable[[], None]) -> None:
        raise lost()

    def retry_after_another(commit: Callable[[], None]) -> None:
        commit()

    with commits(store, lost_and_taken, retry_after_another):
        original = store._committer._ask

        def ask(commit: Any) -> bool:
            store._committer._ask = original  # type: ignore[method-assign]
            for number, size in enumerate(sizes):
                with other.transaction() as tx:
                    for key in range(size):
                        tx.set("t", f"other {key}", number)
            return original(commit)

        store._committer._ask = ask  # type: ignore[method-assign]
        with store.transaction() as tx:
            tx.create("t", "k", 1)
    assert tx.commit is not None
    assert store.get("t", "k") == 1
    assert tx.commit.point.position == sum(sizes) + 1
    assert assert_consistent(store) == len(sizes) + 1


def test_lost_commit_that_was_trimmed_raises_outcome_unknown(open_store: Opener) -> None:
    store = open_store(settings=StoreSettings(retry_attempts=3))
    other = open_store()

    def lost_overtaken_and_trimmed(commit: Callable[[], None]) -> None:
        commit()
        with other.transaction() as tx:
            tx.set("t", "other", 1)
        other.trim(keep_links=0)
        raise lost()

    with (
        commits(store, lost_overtaken_and_trimmed),
        pytest.raises(OutcomeUnknown, match="committed") as caught,
        store.transaction() as tx,
    ):
        tx.create("t", "k", 1)
    assert caught.value.nonce == tx.nonce
    assert store.get("t", "k") == 1
    position = caught.value.position
    assert position == 1
    with pytest.raises(OutcomeUnknown, match="trimmed past the position") as unknown:
        store.committed(tx.nonce, position)
    assert (unknown.value.nonce, unknown.value.position) == (tx.nonce, position)
    assert not store.committed(tx.nonce), "without the position it is not known that the changelog is too short"


def test_definite_error_at_commit_is_retried_without_look_up(sqlite_url: str) -> None:
    def full(_commit: Callable[[], None]) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise exc.OperationalError("COMMIT", None, error)

    with Store(sqlite_url) as store:
        with commits(store, full), pytest.raises(StoreFull), store.transaction() as tx:
            tx.set("t", "k", 1)
        assert assert_consistent(store) == 0
        with store.transaction() as tx:
            tx.set("t", "k", 2)
        assert assert_consistent(store) == 1


def test_violated_condition_is_not_retried(store: Store) -> None:
    with commits(store) as calls, pytest.raises(NotFound), store.transaction() as tx:
        tx.delete("t", "k")
    assert calls == [0]
