"""How the outcome of one write is shown when somebody else is quicker."""

import pytest

from pubsub_lib import Store
from pubsub_lib.cli.write_result import outcome
from pubsub_lib.errors import NotFound


def test_it_shows_its_own_write_and_not_what_somebody_did_since(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("t", "k", 1, topic="mine")
        with store.transaction() as other:
            other.set("t", "k", 2, topic="theirs")
        assert outcome(store, "t", "k", tx.commit)[1] == ("t", "k", "mine", 1, True)
        assert outcome(store, "t", "k", None)[1] == ("t", "k", "theirs", 3, False)


def test_what_was_left_alone_and_then_deleted(sqlite_url: str) -> None:
    with Store(sqlite_url) as store, pytest.raises(NotFound, match="deleted by somebody else"):
        outcome(store, "t", "k", None)
