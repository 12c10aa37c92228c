"""The last failure of a replica's syncs, from its source and from its tracker."""

import random

from pubsub_lib.core.sync_scheduler import SyncScheduler
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.replica.sync_failures import SyncFailures
from tests.unit.core.builders import CALM


def test_failure_lasts_until_an_answer_is_used_and_an_equal_one_is_found_once() -> None:
    syncs = SyncScheduler(CALM, random.Random(0), 0.0)
    failures = SyncFailures(syncs)
    assert failures.why() == ""
    syncs.failed(0.0, why="it hangs")
    assert str(failures.found()) == "it hangs"
    assert failures.answered() is None, "the late answer is ignored"
    assert failures.why() == ": the last sync failed because it hangs"
    syncs.failed(1.0, why="it hangs")
    assert failures.found() is None
    syncs.ended(2.0)
    assert failures.answered() is None
    assert failures.why() == ""
    syncs.failed(3.0, why="it hangs")
    assert str(failures.found()) == "it hangs"


def test_failure_ends_with_the_need_of_the_sync() -> None:
    syncs = SyncScheduler(CALM, random.Random(0), 0.0)
    failures = SyncFailures(syncs)
    syncs.failed(0.0, why="the answer lacks the topic 'u'")
    assert failures.found() is not None
    syncs.no_need()
    assert failures.found() is None
    assert failures.last is None
    failures.raised(StoreUnavailable("no route"))
    assert failures.found() is None
    assert failures.last is not None


def test_late_exception_of_a_source_that_hung_replaces_its_timeout() -> None:
    syncs = SyncScheduler(CALM, random.Random(0), 0.0)
    failures = SyncFailures(syncs)
    logged = []
    for _ in range(2):
        syncs.failed(0.0, why="it hangs")
        logged.append(failures.found() is not None)
        logged.append(not failures.raised(StoreUnavailable("no route")))
        assert str(failures.last) == "no route"
    assert logged == [True, True, False, False]


def test_answer_that_is_only_not_newer_ends_the_failure() -> None:
    syncs = SyncScheduler(CALM, random.Random(0), 0.0)
    failures = SyncFailures(syncs)
    failures.raised(ZeroDivisionError("a bug"))
    assert "internal error: ZeroDivisionError" in failures.why()
    syncs.failed(0.0)
    assert failures.found() is None
    assert failures.why() != "", "a tick does not end it"
    assert failures.answered() is None
    assert failures.why() == ""
