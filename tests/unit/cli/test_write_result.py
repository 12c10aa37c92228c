"""The outcome of one write when another process writes at the same time."""

import pytest

from pubsub_lib import Store
from pubsub_lib.cli.write_result import outcome
from pubsub_lib.errors import NotFound


def test_outcome_is_of_the_commit_and_not_of_a_later_write(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("t", "k", 1, topic="mine")
        with store.transaction() as other:
            other.set("t", "k", 2, topic="theirs")
        assert outcome(store, "t", "k", tx.commit) == ("t", "k", "mine", 1, True)
        assert outcome(store, "t", "k", None) == ("t", "k", "theirs", 3, False)


def test_outcome_of_an_object_deleted_meanwhile(sqlite_url: str) -> None:
    with Store(sqlite_url) as store, pytest.raises(NotFound, match="deleted by another process"):
        outcome(store, "t", "k", None)
