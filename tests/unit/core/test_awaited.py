"""A wait for a commit on a replica's chains: by its point, never by its position alone (rule H4)."""

import pytest

from pubsub_lib.core.awaited import Awaited, HistoryQuery
from pubsub_lib.core.model import ALL, Link, Point
from pubsub_lib.errors import HistoryChanged, OutcomeUnknown
from tests.unit.core.builders import Bench, History

BOTH = pytest.mark.parametrize("chain", ["t", ALL])


def following(chain: str, history: History | None = None) -> tuple[History, Bench]:
    history = history or History()
    if not history.links:
        history.some(3)
    return history, Bench(history, [chain]).synced()


def wait_for(bench: Bench, link: Link) -> Awaited:
    return Awaited(link.point, bench.now)


@BOTH
def test_wait_ends_when_commit_is_applied(chain: str) -> None:
    history, bench = following(chain)
    link = history.one()
    wait = wait_for(bench, link)
    assert wait.look(bench.tracker, [chain]) is False
    bench.feed(link)
    assert wait.look(bench.tracker, [chain]) is True
    bench.feed(history.one())
    assert wait_for(bench, link).look(bench.tracker, [chain]) is True, "an earlier point of the own chain"


@BOTH
def test_other_point_at_same_position_leads_to_query(chain: str) -> None:
    history, bench = following(chain)
    lost = history.restored(3, seed=9).one()
    bench.feed(history.one())
    known = bench.known(chain)
    assert known is not None
    assert known.position == lost.point.position
    wait = wait_for(bench, lost)
    query = wait.look(bench.tracker, [chain])
    assert query == HistoryQuery(chain, (lost.point, known))
    assert wait.look(bench.tracker, [chain]) is False, "asked once"
    with pytest.raises(HistoryChanged, match="not in the store's history") as raised:
        wait.answered(query, [False, True])
    assert raised.value.point == lost.point


@BOTH
def test_commit_skipped_by_full_sync_is_queried_and_settled(chain: str) -> None:
    history = History()
    history.some(3)
    early = history.links[1]
    history, bench = following(chain, history)
    wait = wait_for(bench, early)
    query = wait.look(bench.tracker, [chain])
    assert isinstance(query, HistoryQuery)
    wait.answered(query, [True, True])
    assert wait.look(bench.tracker, [chain]) is True


def test_trimmed_commit_raises_outcome_unknown() -> None:
    history = History()
    history.some(3)
    history, bench = following("t", history)
    wait = wait_for(bench, history.links[0])
    query = wait.look(bench.tracker, ["t"])
    assert isinstance(query, HistoryQuery)
    with pytest.raises(OutcomeUnknown, match="does not reach back") as raised:
        wait.answered(query, [None, True])
    assert raised.value.nonce == history.links[0].point.nonce


@BOTH
def test_wait_continues_until_replica_detects_changed_history(chain: str) -> None:
    """The commit is in the store; its position is behind known, a point of an undone history."""
    history, bench = following(chain)
    bench.feed(*history.some(3))
    now = history.restored(3, seed=9)
    bench.history = now
    link = now.one()
    wait = wait_for(bench, link)
    query = wait.look(bench.tracker, [chain])
    assert isinstance(query, HistoryQuery)
    wait.answered(query, [True, False])
    assert wait.look(bench.tracker, [chain]) is False
    bench.receive(now.reading(), nonce=bench.ask().nonce)
    while bench.known(chain) != now.head(chain):
        bench.wait(1.0)
        if bench.is_syncing():
            bench.answer()
    assert wait.look(bench.tracker, [chain]) is True


@BOTH
def test_lost_commit_is_queried_after_a_later_reading(chain: str) -> None:
    """No further writes, so known never reaches the position."""
    history, bench = following(chain)
    lost = history.restored(3, seed=9).one()
    wait = wait_for(bench, lost)
    assert wait.look(bench.tracker, [chain]) is False
    nonce = bench.ask().nonce
    bench.receive(history.reading(), nonce=nonce)
    query = wait.look(bench.tracker, [chain])
    assert isinstance(query, HistoryQuery)
    with pytest.raises(HistoryChanged):
        wait.answered(query, [False, True])


def test_reading_older_than_the_wait_leads_to_no_query() -> None:
    history, bench = following("t")
    link = history.one()
    wait = wait_for(bench, link)
    bench.receive(history.restored(3).reading(), nonce=bench.ask().nonce, age=bench.timing.max_idle_time + 1.0)
    assert wait.look(bench.tracker, ["t"]) is False


def test_failed_query_is_repeated() -> None:
    history = History()
    history.some(3)
    history, bench = following("t", history)
    wait = wait_for(bench, history.links[0])
    query = wait.look(bench.tracker, ["t"])
    assert isinstance(query, HistoryQuery)
    assert wait.look(bench.tracker, ["t"]) is False
    wait.forget(query)
    assert wait.look(bench.tracker, ["t"]) == query


def test_wait_continues_during_a_full_sync() -> None:
    history, bench = following("t")
    link = history.one()
    bench.feed(link)
    bench.tracker.mismatched("t", bench.now)
    wait = wait_for(bench, link)
    assert wait.look(bench.tracker, ["t"]) is False
    bench.wait()
    bench.answer()
    assert wait.look(bench.tracker, ["t"]) is True


def two_topics() -> tuple[History, Bench, Awaited, Link]:
    """A wait for a commit that one of two topics has; and its link of the other."""
    history = History()
    history.commit(("t", "k", "1"), ("u", "k", "1"))
    bench = Bench(history, ["t", "u"]).synced()
    first, second = history.commit(("t", "k", "2"), ("u", "k", "2"))
    wait = Awaited(first.point, bench.now)
    bench.feed(first)
    assert wait.look(bench.tracker, ["t", "u"]) is False
    return history, bench, wait, second


def test_wait_needs_the_commit_in_every_written_topic() -> None:
    _, bench, wait, second = two_topics()
    bench.feed(second)
    assert wait.look(bench.tracker, ["t", "u"]) is True


def test_topic_followed_again_loses_the_settled_commit() -> None:
    _, bench, wait, second = two_topics()
    bench.tracker.unsubscribe("t")
    bench.do(bench.tracker.subscribe(["t"], bench.now))
    bench.feed(second)
    assert wait.look(bench.tracker, ["t", "u"]) is False
    bench.synced()
    assert wait.look(bench.tracker, ["t", "u"]) is True


def test_commit_undone_by_restore_is_queried_again() -> None:
    history, bench, wait, second = two_topics()
    lost = bench.known("t")
    assert lost is not None
    bench.feed(second)
    bench.history = history.restored(lost.position - 1, seed=9)
    bench.tracker.resync(["t"], bench.now)
    bench.wait(1.0)
    bench.answer()
    known = bench.known("t")
    assert known is not None
    assert known != lost
    bench.history.one("t")
    query = wait.look(bench.tracker, ["t", "u"])
    assert query == HistoryQuery("t", (lost, known)), "t went back"
    bench.receive(bench.history.reading(), nonce=bench.ask().nonce)
    assert wait.look(bench.tracker, ["t", "u"]) is False
    with pytest.raises(HistoryChanged):
        wait.answered(query, [False, True])


def test_answer_about_replaced_history_is_ignored() -> None:
    history = History()
    history.some(3)
    early = history.links[1]
    history, bench = following("t", history)
    wait = wait_for(bench, early)
    query = wait.look(bench.tracker, ["t"])
    assert isinstance(query, HistoryQuery)
    bench.tracker.resync(["t"], bench.now)
    bench.wait(1.0)
    bench.answer()
    wait.answered(query, [True, True])
    assert isinstance(wait.look(bench.tracker, ["t"]), HistoryQuery), "queried for the chain's current history"


def test_unknown_point_is_never_applied() -> None:
    _, bench = following("t")
    stranger = Point(1, 424242)
    wait = Awaited(stranger, bench.now)
    query = wait.look(bench.tracker, ["t"])
    assert isinstance(query, HistoryQuery)
    for known in (True, False, None):
        with pytest.raises(HistoryChanged):
            wait.answered(query, [False, known])
