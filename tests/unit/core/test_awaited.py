"""Whether a commit is on a replica's chains: by its point, never by its position alone (rule H4)."""

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
def test_what_was_applied_is_there_and_what_was_not_is_not(chain: str) -> None:
    history, bench = following(chain)
    link = history.one()
    wait = wait_for(bench, link)
    assert wait.look(bench.tracker, [chain]) is False
    bench.feed(link)
    assert wait.look(bench.tracker, [chain]) is True
    bench.feed(history.one())
    assert wait_for(bench, link).look(bench.tracker, [chain]) is True, "an earlier point of the own chain"


@BOTH
def test_another_point_at_the_same_position_is_asked_about(chain: str) -> None:
    history, bench = following(chain)
    lost = history.restored(3, seed=9).one()
    bench.feed(history.one())
    known = bench.known(chain)
    assert known is not None
    assert known.position == lost.point.position
    wait = wait_for(bench, lost)
    question = wait.look(bench.tracker, [chain])
    assert question == HistoryQuery(chain, (lost.point, known))
    assert wait.look(bench.tracker, [chain]) is False, "asked once"
    with pytest.raises(HistoryChanged, match="not in the store's history") as raised:
        wait.answered(question, [False, True])
    assert raised.value.point == lost.point


@BOTH
def test_what_a_full_sync_jumped_over_is_asked_about_and_believed(chain: str) -> None:
    history = History()
    history.some(3)
    early = history.links[1]
    history, bench = following(chain, history)
    wait = wait_for(bench, early)
    question = wait.look(bench.tracker, [chain])
    assert isinstance(question, HistoryQuery)
    wait.answered(question, [True, True])
    assert wait.look(bench.tracker, [chain]) is True


def test_what_nobody_can_tell_is_not_called_applied() -> None:
    history = History()
    history.some(3)
    history, bench = following("t", history)
    wait = wait_for(bench, history.links[0])
    question = wait.look(bench.tracker, ["t"])
    assert isinstance(question, HistoryQuery)
    with pytest.raises(OutcomeUnknown, match="does not reach back") as raised:
        wait.answered(question, [None, True])
    assert raised.value.nonce == history.links[0].point.nonce


@BOTH
def test_a_replica_that_is_still_in_the_old_history_waits_until_it_has_noticed(chain: str) -> None:
    """The commit is in the store; its position is behind known, which is a point of a history that is no more."""
    history, bench = following(chain)
    bench.feed(*history.some(3))
    now = history.restored(3, seed=9)
    bench.history = now
    link = now.one()
    wait = wait_for(bench, link)
    question = wait.look(bench.tracker, [chain])
    assert isinstance(question, HistoryQuery)
    wait.answered(question, [True, False])
    assert wait.look(bench.tracker, [chain]) is False
    bench.hear(now.reading(), nonce=bench.ask().nonce)
    while bench.known(chain) != now.head(chain):
        bench.wait(1.0)
        if bench.is_syncing():
            bench.answer()
    assert wait.look(bench.tracker, [chain]) is True


@BOTH
def test_a_commit_that_the_store_lost_is_asked_about_when_the_store_was_read_later(chain: str) -> None:
    """Nothing is written any more, so known never reaches the position."""
    history, bench = following(chain)
    lost = history.restored(3, seed=9).one()
    wait = wait_for(bench, lost)
    assert wait.look(bench.tracker, [chain]) is False
    nonce = bench.ask().nonce
    bench.hear(history.reading(), nonce=nonce)
    question = wait.look(bench.tracker, [chain])
    assert isinstance(question, HistoryQuery)
    with pytest.raises(HistoryChanged):
        wait.answered(question, [False, True])


def test_a_reading_from_before_the_wait_says_nothing() -> None:
    history, bench = following("t")
    link = history.one()
    wait = wait_for(bench, link)
    bench.hear(history.restored(3).reading(), nonce=bench.ask().nonce, age=bench.timing.max_idle_time + 1.0)
    assert wait.look(bench.tracker, ["t"]) is False


def test_a_store_that_could_not_be_asked_is_asked_again() -> None:
    history = History()
    history.some(3)
    history, bench = following("t", history)
    wait = wait_for(bench, history.links[0])
    question = wait.look(bench.tracker, ["t"])
    assert isinstance(question, HistoryQuery)
    assert wait.look(bench.tracker, ["t"]) is False
    wait.forget(question)
    assert wait.look(bench.tracker, ["t"]) == question


def test_while_everything_is_read_nothing_is_certain() -> None:
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


def test_every_topic_that_was_written_to_must_have_it() -> None:
    _, bench, wait, second = two_topics()
    bench.feed(second)
    assert wait.look(bench.tracker, ["t", "u"]) is True


def test_a_topic_that_is_dropped_and_followed_again_meanwhile_does_not_have_it() -> None:
    _, bench, wait, second = two_topics()
    bench.tracker.unsubscribe("t")
    bench.do(bench.tracker.subscribe(["t"], bench.now))
    bench.feed(second)
    assert wait.look(bench.tracker, ["t", "u"]) is False
    bench.synced()
    assert wait.look(bench.tracker, ["t", "u"]) is True


def test_a_commit_that_a_restore_takes_away_meanwhile_is_asked_about_again() -> None:
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
    question = wait.look(bench.tracker, ["t", "u"])
    assert question == HistoryQuery("t", (lost, known)), "t went back"
    bench.hear(bench.history.reading(), nonce=bench.ask().nonce)
    assert wait.look(bench.tracker, ["t", "u"]) is False
    with pytest.raises(HistoryChanged):
        wait.answered(question, [False, True])


def test_what_the_store_said_of_a_history_that_was_replaced_meanwhile_is_not_believed() -> None:
    history = History()
    history.some(3)
    early = history.links[1]
    history, bench = following("t", history)
    wait = wait_for(bench, early)
    question = wait.look(bench.tracker, ["t"])
    assert isinstance(question, HistoryQuery)
    bench.tracker.resync(["t"], bench.now)
    bench.wait(1.0)
    bench.answer()
    wait.answered(question, [True, True])
    assert isinstance(wait.look(bench.tracker, ["t"]), HistoryQuery), "asked of the chain as it is now"


def test_a_point_of_nobody_is_never_called_applied_whatever_the_store_says_of_known() -> None:
    _, bench = following("t")
    stranger = Point(1, 424242)
    wait = Awaited(stranger, bench.now)
    question = wait.look(bench.tracker, ["t"])
    assert isinstance(question, HistoryQuery)
    for known in (True, False, None):
        with pytest.raises(HistoryChanged):
            wait.answered(question, [False, known])
