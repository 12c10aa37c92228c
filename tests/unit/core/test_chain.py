"""One chain: its known point, its passed points, the start of its clock."""

import pytest

from pubsub_lib.core.chain import MAX_HEADS, MAX_RECENT_POINTS, RECENT_POINTS, RECENT_ROUNDS, Chain
from pubsub_lib.core.envelope import Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Point, Want
from pubsub_lib.core.reorder_buffer import WaitingSpace
from pubsub_lib.core.transitions import State, Trigger
from tests.unit.core.builders import History, run_of


def chain(name: str = "t", known: Point | None = ZERO) -> Chain:
    return Chain(name, WaitingSpace(Limits()), known, 0.0)


def test_topic_follows_its_own_points_and_all_the_transactions() -> None:
    history = History()
    history.one("other")
    link = history.commit(("t", "k", "1"), ("other", "k", "1"))[0]
    assert (chain().previous(link), chain().needed(link)) == (link.prev, 1)
    assert (chain(ALL).previous(link), chain(ALL).needed(link)) == (link.tx_prev, 2)
    assert chain().is_whole(Message(link))
    assert not chain(ALL).is_whole(Message(link))


def test_part_of_a_run_is_not_whole() -> None:
    link = History().commit(("t", "a", "1"), ("t", "b", "1"))[0]
    assert not any(chain().is_whole(part) for part in run_of(link, 2))


def test_passed_is_true_only_on_the_replicas_own_chain() -> None:
    one = chain()
    one.advance(Point(5, 55), 1.0)
    assert one.passed(ZERO)
    assert one.passed(Point(5, 55))
    assert not one.passed(Point(5, 66)), "the same position of another history"
    assert not one.passed(Point(3, 33)), "a point in between that was never on the chain"
    one.jump(Point(9, 99), 2.0)
    assert not one.passed(Point(5, 55)), "points before a full sync may be of another history"


def test_busy_chain_remembers_points_of_recent_rounds() -> None:
    one = chain()
    for position in range(1, 4 * RECENT_POINTS):
        one.advance(Point(position, 1), 0.0)
    for _ in range(RECENT_ROUNDS):
        assert one.passed(Point(1, 1))
        one.new_round()
        assert len(one.recent) == RECENT_POINTS
    assert one.passed(Point(1, 1)), "a publisher may answer from a reading as old as its configured age"
    one.new_round()
    assert not one.passed(Point(1, 1))
    assert one.passed(Point(4 * RECENT_POINTS - 1, 1))
    assert len(one.earlier) == 0, "a chain that became idle keeps no more points than others"


def test_remembered_points_are_bounded() -> None:
    one = chain()
    for position in range(1, 3 * MAX_RECENT_POINTS):
        one.advance(Point(position, 1), 0.0)
        if position % (MAX_RECENT_POINTS // 8) == 0:
            one.new_round()
        assert sum(map(len, one.earlier)) + len(one.recent) <= (RECENT_ROUNDS + 1) * MAX_RECENT_POINTS
    one.jump(ZERO, 1.0)
    assert (len(one.recent), len(one.earlier)) == (1, 0)


def test_rule_03_clock_starts_with_the_oldest_link_or_head() -> None:
    history = History()
    links = history.some(3)
    one = chain()
    assert one.clock_started() is None
    one.remember_head(links[2].point, 5.0, 1)
    one.reorder_buffer.hold(Message(links[1]), links[1].prev, 1, 4.0, 1)
    assert one.clock_started() == 4.0
    one.reorder_buffer.drop_old(links[1].point, everywhere=True)
    assert one.clock_started() == 5.0
    one.advance(links[2].point, 6.0)
    assert one.clock_started() is None


def test_remembered_heads_are_bounded_and_keep_oldest_and_newest() -> None:
    one = chain()
    for position in range(1, 10 * MAX_HEADS):
        one.remember_head(Point(position, 1), float(position), position)
    assert len(one.heads) == MAX_HEADS
    assert (one.heads[0].point.position, one.heads[-1].point.position) == (1, 10 * MAX_HEADS - 1)
    one.drop_heads_before(MAX_HEADS)
    assert [head.point.position for head in one.heads] == [10 * MAX_HEADS - 1]


def test_head_of_lost_links_is_due_before_the_window_ends() -> None:
    one = chain()
    assert one.lost_at() == float("inf")
    one.remember_head(Point(1, 1), 5.0, 1)
    assert one.lost_at() == float("inf")
    one.remember_head(Point(3, 1), 5.0, 1, lost_at=7.0)
    one.remember_head(Point(2, 1), 6.0, 1, lost_at=6.5)
    assert one.lost_at() == 6.5
    one.advance(Point(2, 1), 6.2)
    assert one.lost_at() == 7.0
    one.drop_heads_before(2)
    assert one.lost_at() == float("inf")


def test_chain_stops_waiting_at_the_end_of_its_window_or_at_a_proved_loss() -> None:
    one = chain()
    assert (one.window_ends(2.0), one.expires(2.0)) == (float("inf"), float("inf"))
    one.remember_head(Point(2, 1), 5.0, 1)
    assert (one.window_ends(2.0), one.expires(2.0)) == (7.0, 7.0)
    one.remember_head(Point(3, 1), 5.0, 1, lost_at=6.5)
    assert (one.window_ends(2.0), one.expires(2.0)) == (7.0, 6.5)
    assert (one.window_ends(1.0), one.expires(1.0)) == (6.0, 6.0)


def test_cause_is_the_trigger_that_made_a_sync_due() -> None:
    one = chain()
    one.trigger(Trigger.RESUMED)
    assert one.cause == "resumed"
    one.trigger(Trigger.HELD)
    assert one.cause == "resumed"
    one.trigger(Trigger.BEGUN)
    one.trigger(Trigger.INCOMPLETE)
    assert (one.cause, one.state) == ("incomplete", State.FULL_DUE)


@pytest.mark.parametrize("done", [Trigger.CAUGHT_UP, Trigger.BEHIND])
def test_synced_is_set_only_by_a_completed_sync(done: Trigger) -> None:
    one = chain()
    for trigger in (Trigger.RESUMED, Trigger.BEGUN, Trigger.FAILED, Trigger.BEGUN):
        one.trigger(trigger)
        assert not one.synced
    one.trigger(done)
    assert one.synced


def test_chain_is_frozen_without_known_or_with_a_full_sync_due() -> None:
    assert chain(known=None).frozen
    assert chain(known=None).known_position == -1
    one = chain()
    assert not one.frozen
    one.trigger(Trigger.MISMATCHED)
    assert one.frozen


def test_rule_r4_turn_of_a_time_is_that_of_the_first_link_or_head_since_then() -> None:
    one = chain()
    first, second, third = History().some(3)
    assert one.turn_of(0.0, 99) == 99
    one.reorder_buffer.hold(Message(third), third.prev, 1, 5.0, 4)
    one.remember_head(third.point, 6.0, 7)
    one.reorder_buffer.hold(Message(second), second.prev, 1, 8.0, 9)
    assert [one.turn_of(time, 99) for time in (0.0, 5.0, 5.5, 6.0, 7.0, 8.0, 8.5)] == [4, 4, 7, 7, 9, 9, 99]
    assert first.point.position < second.point.position


def test_rule_r3_reading_behind_a_relays_delta_is_doubted_when_it_may_be_later() -> None:
    one = chain()
    assert not one.doubts(Point(3, 33), 100.0)
    one.answered = Point(5, 55), 7.0
    assert one.doubts(Point(3, 33), 7.5)
    assert not one.doubts(Point(3, 33), 7.0)
    assert not one.doubts(Point(5, 55), 7.5)
    one.jump(Point(4, 44), 8.0)
    assert not one.doubts(Point(3, 33), 9.0), "a full sync replaces the delta"


def test_remembered_points_begin_with_the_oldest() -> None:
    one = chain(known=Point(1, 1))
    for position in range(2, RECENT_POINTS + 5):
        one.advance(Point(position, 1), 0.0)
    one.new_round()
    one.advance(Point(RECENT_POINTS + 5, 1), 0.0)
    points = [point.position for point in one.remembered()]
    assert points[0] == one.oldest.position == 1
    assert points[-1] == RECENT_POINTS + 5
    one.jump(Point(7, 7), 0.0)
    assert one.oldest == Point(7, 7)
    assert chain(known=None).oldest == ZERO


def test_sync_reads_a_delta_or_buckets_or_everything() -> None:
    one = chain(known=Point(3, 3))
    one.trigger(Trigger.RESUMED)
    assert one.state is State.DELTA_DUE
    assert one.want == Want(after=Point(3, 3))
    for trigger in (Trigger.BEGUN, Trigger.INCOMPLETE):
        one.trigger(trigger)
    assert one.want == Want()
    one.repair = True
    assert one.want == Want(buckets={})
