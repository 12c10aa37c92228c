"""The status of a replica: dropped messages by reason, parked objects, and the reasons why it is not ready."""

import logging
import sqlite3
import threading
from collections.abc import Mapping

import msgspec
import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import Replica, Store, Timing
from pubsub_lib.core.timing import no_publisher_bound
from pubsub_lib.core.tracker_counters import Counters
from pubsub_lib.errors import PubSubError, StoreUnavailable
from pubsub_lib.replica.status import ParkedObject, max_staleness, problems, rejected
from tests.unit.world import QUICK, settings

LONG = longest(120.0)


def found_problems(
    *, synced: bool = True, staleness: float = 0.0, last: PubSubError | None = None, failure: PubSubError | None = None
) -> list[str]:
    return problems(QUICK, synced=synced, staleness=staleness, last_error=last, failure=failure)


def test_replica_is_ready_up_to_the_promised_staleness() -> None:
    maximum = max_staleness(QUICK)
    assert maximum == pytest.approx(3 * 0.3 + 0.1 + (10.0 + 0.02 + 0.01))
    assert found_problems(staleness=maximum) == []
    assert found_problems(staleness=maximum + 0.1) == ["the replica may be stale by 11.1 s, more than 11.0 s"]


def test_max_staleness_is_the_bound_without_publishers() -> None:
    assert max_staleness(Timing()) == no_publisher_bound(Timing(), 0.0) == 78.5


def test_problems_name_the_last_error() -> None:
    away = StoreUnavailable("the database is away")
    assert found_problems(last=away) == []  # one failed sync is not a problem while publishers prove freshness
    assert found_problems(synced=False, staleness=float("inf"), last=away) == [
        "the replica is not synced yet; the last sync failed: the database is away"
    ]
    late = problems(QUICK, synced=True, staleness=0.0, last_error=None, failure=None, handled=False)
    assert late == ["handlers have not handled all objects that were there when they began; the replica has them"]
    assert found_problems(failure=PubSubError("it differs")) == [
        "the consistency check of the replica failed: it differs"
    ]


def test_messages_that_were_not_used_are_named_for_the_journal() -> None:
    counted = Counters(foreign=1, overflowed=2, quarantined=3, unleased=4, foreign_store=5, old=6)
    found = rejected({"truncated": 7, "received": 8}, counted)
    assert {why: count for why, count in found.items() if count} == {
        "truncated": 7, "other_history": 1, "overflowed": 2, "quarantined": 3, "unleased": 4, "foreign_store": 5,
    }  # fmt: skip


def test_status_of_a_running_replica(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        replica = Replica(settings(sqlite_url), ["t"])

        def broken(change: object) -> None:
            raise RuntimeError("cannot")

        replica.on("a", broken)
        assert replica.status().problems == ["the replica was not started; call start(), or use it in a with statement"]
        with replica:
            replica.wait_synced(LONG)
            assert replica.status().ready
            with store.transaction() as tx:
                tx.set("a", "k", 1, topic="t")
            assert tx.commit is not None
            replica.wait_handled(tx.commit, LONG)
            assert poll(lambda: replica.status().handlers.parked == 1, LONG)
            status = replica.status()
            (parked,) = status.parked
            assert parked == ParkedObject(parked.handler, "t", "a", "k", 1, "RuntimeError: cannot")
            assert "broken" in parked.handler
            assert status.dropped.keys() >= {"old", "other_history", "overflowed", "truncated", "version"}
            assert set(status.dropped.values()) == {0}


def test_status_asks_the_driver_without_the_replicas_lock(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may hold a lock of its own in ``counters``, and while it gives a message to the replica."""
    free: list[bool] = []

    with Store(sqlite_url), Replica(settings(sqlite_url), ["t"]) as replica:
        counters = replica._subscriber.counters

        def asked() -> Mapping[str, int]:
            receiving = threading.Thread(target=replica._engine.read, args=(lambda state: None,))
            receiving.start()
            receiving.join(5.0)
            free.append(not receiving.is_alive())
            return counters()

        monkeypatch.setattr(replica._subscriber, "counters", asked)
        assert replica.status().driver == counters()
    assert free == [True]


class UnprintableError(Exception):
    """The exception of a handler, e.g. of an ORM whose session is closed when the text is made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_status_has_a_parked_object_whose_error_has_no_text(sqlite_url: str) -> None:
    with Store(sqlite_url) as store, Replica(settings(sqlite_url), ["t"]) as replica:

        def broken(change: object) -> None:
            raise UnprintableError

        replica.on("a", broken)
        with store.transaction() as tx:
            tx.set("a", "k", 1, topic="t")
        replica.wait_handled(tx.commit, LONG)
        assert [parked.error for parked in replica.status().parked] == ["UnprintableError"]


def test_a_topic_that_never_matches_its_digest_is_a_problem_and_logged_once(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("a", "k", 1, topic="t")
        change = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
        with change:
            change.execute("UPDATE pubsub_topics SET digest_lo = digest_lo + 1")
        change.close()
        quick = settings(sqlite_url, paranoid=False, timing=msgspec.structs.replace(QUICK, hello_wait=0.01))
        with caplog.at_level(logging.ERROR), Replica(quick, ["t"]) as replica:
            replica.wait_synced(LONG)
            assert poll(lambda: sum(replica.status().counters.fulls.values()) >= 4, LONG)
            assert poll(lambda: replica.status().chains["t"].state == "following", LONG)
            status = replica.status()
            assert not status.ready
            assert status.problems[0].startswith("the store's count or digest of the topic 't' does not match")
            assert [record.message for record in caplog.records] == [status.problems[0]]
            with store.transaction() as tx:
                tx.set("a", "k", 2, topic="t")
            assert tx.commit is not None
            replica.wait_for(tx.commit, LONG)
            assert replica.get("a", "k") == 2
