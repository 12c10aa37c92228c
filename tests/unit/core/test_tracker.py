"""The tracker against rules 1 to 14, one by one, in virtual time. Rules 6, 7: test_freshness; 9: test_sync_scheduler;
11: test_sequence_gaps; 13: test_timing; 14: test_verification; all of them together, at random: test_replica_state.
"""

import itertools
import random

import msgspec
import pytest

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.effects import RequestHello
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Heads, Point, Want
from pubsub_lib.core.reorder_buffer import ALL_CHAINS_LINKS, size_of
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.transitions import State
from tests.unit.core.builders import CALM, Bench, History, envelope, hello, run_of

WINDOW = CALM.message_delay_window
THREE = Limits(max_waiting_links=3)


def following(limits: Limits = Limits(), topics: tuple[str, ...] = ("t",)) -> tuple[History, Bench]:  # noqa: B008
    """A store with objects, and a replica that has all of them."""
    history = History()
    for topic in topics:
        if topic != ALL:
            history.some(2, topic)
    return history, Bench(history, topics, limits=limits).synced()


# -- rule 1 ------------------------------------------------------------------------------------------------------


def test_rule_01_connecting_link_is_applied_at_once() -> None:
    history, bench = following()
    link = history.one()
    assert bench.feed(link) == [link]
    assert bench.known() == link.point
    assert bench.state() is State.FOLLOWING


def test_rule_01_link_waits_for_a_missing_one() -> None:
    history, bench = following()
    first, second, third = history.some(3)
    assert bench.feed(third, second) == []
    assert bench.known() == first.prev
    assert bench.feed(first) == [first, second, third]
    assert bench.state() is State.FOLLOWING


def test_rule_01_every_order_of_arrival_ends_in_chain_order() -> None:
    for order in itertools.permutations(range(4)):
        history, bench = following()
        links = history.some(4)
        assert bench.feed(*[links[index] for index in order]) == links, order
        assert bench.state() is State.FOLLOWING, order


def test_rule_01_run_of_parts_is_applied_only_when_complete() -> None:
    history, bench = following()
    link = history.commit(*[("t", f"k{index}", "2") for index in range(6)])[0]
    first, second, third = run_of(link, 3)
    assert bench.feed(third, first, first) == []
    assert bench.known() == link.prev
    assert bench.feed(second) == [link]


def test_rule_01_a_repeated_part_does_not_complete_a_run() -> None:
    history, bench = following()
    link = history.commit(("t", "a", "1"), ("t", "b", "1"))[0]
    first, _ = run_of(link, 2)
    assert bench.feed(first, first, first) == []


def test_rule_01_parts_of_differently_cut_runs_do_not_mix() -> None:
    # A second publisher with another frame bound sends the same link again.
    history, bench = following()
    link = history.commit(*[("t", f"k{index}", "2") for index in range(6)])[0]
    two, three = run_of(link, 2), run_of(link, 3)
    for order in itertools.permutations([two[0], three[1], three[2], two[1]]):
        bench = Bench(history.restored(link.prev.position)).synced()
        for message in order:
            assert bench.feed(message) in ([], [link])
        assert bench.applied in ([], [link])
    assert bench.tracker.chain("t").reorder_buffer.messages <= 4


def test_rule_01_a_replica_of_everything_applies_whole_transactions() -> None:
    history, bench = following(topics=(ALL,))
    first, second = history.commit(("a", "k", "1"), ("b", "k", "1"))
    assert bench.feed(second) == []
    assert bench.feed(first) == [first, second]
    assert bench.known(ALL) == first.point


def test_rule_01_replica_of_everything_applies_a_new_topics_only_message() -> None:
    history, bench = following(topics=(ALL,))
    link = history.one("never seen before")
    assert bench.feed(link) == [link]


def test_rule_01_replica_of_topics_does_not_wait_for_other_topics() -> None:
    history, bench = following()
    _, mine = history.commit(("other", "k", "1"), ("t", "k", "1"))
    history.one("other")
    later = history.one()
    assert bench.feed(mine, later) == [mine, later]


# -- rule 2 ------------------------------------------------------------------------------------------------------


def test_rule_02_link_at_or_behind_known_is_counted_as_old() -> None:
    history, bench = following()
    links = history.some(2)
    bench.feed(*links)
    assert bench.feed(*links) == []
    assert bench.tracker.counters.old == 2
    assert bench.tracker.counters.waited == 0


def test_rule_02_known_position_with_another_nonce_is_counted_as_foreign() -> None:
    history, bench = following()
    twin = history.restored(history.point.position)
    bench.feed(history.one())
    assert bench.feed(twin.one()) == []
    assert bench.tracker.counters.foreign == 1


def test_rule_02_waiting_links_are_bounded_and_overflow_schedules_a_delta() -> None:
    history, bench = following(THREE)
    links = history.some(6)
    bench.feed(*links[1:4])
    assert bench.state() is State.HOLDING
    bench.feed(links[4])
    assert bench.state() is State.DELTA_DUE
    assert bench.tracker.counters.overflowed == 1
    assert bench.tracker.chain("t").reorder_buffer.messages == 3
    bench.wait()
    assert bench.running.wants == {"t": Want(after=links[0].prev)}
    assert bench.answer() == links


def test_rule_02_waiting_links_are_bounded_in_bytes() -> None:
    history, bench = following(Limits(max_waiting_bytes=size_of(History().one(value='"12345"')) + 10))
    _, second, third = history.one(), history.one(value='"12345"'), history.one(value='"12345"')
    bench.feed(second)
    assert bench.state() is State.HOLDING
    bench.feed(third)
    assert bench.state() is State.DELTA_DUE


def test_rule_02_topic_that_is_not_followed_any_more_gives_its_room_back() -> None:
    topics = tuple(f"t{number}" for number in range(ALL_CHAINS_LINKS + 1))
    history, bench = following(Limits(max_waiting_links=1), topics)
    *full, last = [history.some(2, topic)[1] for topic in topics]
    for link in full:
        bench.feed(link)
        assert bench.state(link.topic) is State.HOLDING
    bench.tracker.unsubscribe(topics[0])
    bench.feed(last)
    assert bench.state(last.topic) is State.HOLDING
    bench.feed(history.some(2, topics[1])[1])
    assert bench.state(topics[1]) is State.DELTA_DUE, "its own limit is reached"


def test_rule_02_waiting_links_of_all_topics_are_bounded_together() -> None:
    topics = tuple(f"t{number}" for number in range(ALL_CHAINS_LINKS + 1))
    history, bench = following(Limits(max_waiting_links=1), topics)
    *full, last = [history.some(2, topic)[1] for topic in topics]
    for link in full:
        bench.feed(link)
        assert bench.state(link.topic) is State.HOLDING
    bench.feed(last)
    assert bench.state(last.topic) is State.DELTA_DUE, "no room is left: the store is read"
    assert bench.tracker.counters.overflowed == 1


@pytest.mark.parametrize("full", [False, True])
def test_rule_02_overflow_during_a_sync_is_remembered_without_restart(full: bool) -> None:
    history, bench = following(THREE)
    links = history.some(8)
    if full:
        history.trim(links[2].point.position)
    bench.feed(links[1])
    bench.wait(WINDOW)
    if full:
        bench.answer()
        bench.wait()
    sync, reading = bench.running, history.restored(links[2].point.position).answer(bench.running.wants)
    bench.feed(*links[3:])
    assert bench.running is sync
    if full:
        reading = history.answer(sync.wants)
    bench.answer(reading)
    assert bench.state() is State.DELTA_DUE
    bench.wait()
    bench.answer()
    assert bench.known() == history.point


def test_rule_02_connecting_link_is_applied_with_a_full_buffer() -> None:
    history, bench = following(Limits(max_waiting_links=1))
    first, _, third = history.some(3)
    bench.feed(third)
    assert bench.feed(first) == [first]


# -- rule 3 ------------------------------------------------------------------------------------------------------


def test_rule_03_clock_runs_from_the_oldest_waiting_link() -> None:
    history, bench = following()
    links = history.some(6)
    bench.feed(links[1])
    bench.wait(0.7 * WINDOW)
    bench.feed(links[2], links[5])
    assert bench.tracker.next_time() == pytest.approx(bench.now + 0.3 * WINDOW)
    bench.wait(0.3 * WINDOW)
    assert bench.running.wants == {"t": Want(after=links[0].prev)}
    assert bench.running.causes == {"t": "expired"}


def test_rule_03_clock_continues_for_the_rest_when_the_oldest_connects() -> None:
    history, bench = following()
    links = history.some(6)
    bench.feed(links[1])
    bench.wait(0.5 * WINDOW)
    bench.feed(links[4])
    bench.feed(links[0])
    assert bench.state() is State.HOLDING
    bench.wait(0.5 * WINDOW)
    assert bench.state() is State.HOLDING
    bench.wait(0.5 * WINDOW)
    assert bench.running.wants == {"t": Want(after=links[1].point)}


def test_rule_03_clock_stops_when_no_link_waits() -> None:
    history, bench = following()
    first, second = history.some(2)
    bench.feed(second)
    bench.wait(0.9 * WINDOW)
    bench.feed(first)
    bench.wait(0.2 * WINDOW)
    assert bench.sync is None
    assert bench.syncs[1:] == []


def test_rule_03_repeated_waiting_link_does_not_restart_the_clock() -> None:
    history, bench = following()
    _, second = history.some(2)
    bench.feed(second)
    for _ in range(4):
        bench.wait(0.2 * WINDOW)
        bench.feed(second)
    bench.wait(0.2 * WINDOW + 1e-9)
    assert bench.running.causes == {"t": "expired"}


def test_rule_03_hello_head_beyond_known_starts_the_clock() -> None:
    history, bench = following()
    link = history.one()
    bench.receive(history.reading())
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == [link]
    assert bench.state() is State.FOLLOWING


def test_rule_03_hello_head_reached_by_links_starts_no_sync() -> None:
    history, bench = following()
    links = history.some(2)
    bench.receive(history.reading())
    bench.feed(*links)
    bench.wait(2 * WINDOW)
    assert bench.sync is None


def test_rule_03_newest_of_many_heads_is_remembered() -> None:
    # All are remembered while a full sync runs; the store's answer is older than the last one only.
    history, bench = following()
    bench.tracker.mismatched("t", bench.now)
    bench.wait()
    reading = history.answer(bench.running.wants)
    heads = history.reading()
    for _ in range(200):
        bench.receive(heads)
    link = history.one()
    bench.receive(history.reading())
    bench.answer(reading)
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == [link]


def test_rule_03_an_incomplete_run_starts_the_clock() -> None:
    history, bench = following()
    link = history.commit(("t", "a", "1"), ("t", "b", "1"))[0]
    bench.feed(run_of(link, 2)[1])
    bench.wait(WINDOW)
    assert bench.answer() == [link]


def test_rule_03_no_delta_starts_without_cause() -> None:
    history, bench = following()
    for _ in range(50):
        bench.feed(history.one())
        bench.receive(history.reading(), nonce=bench.ask().nonce)
        bench.wait(1.0)
    assert len(bench.syncs) == 1


# -- rule 4 ------------------------------------------------------------------------------------------------------


def test_rule_04_hello_with_the_known_head_starts_no_sync() -> None:
    history, bench = following()
    bench.receive(history.reading())
    assert bench.state() is State.FOLLOWING
    assert bench.tracker.next_time() > bench.now + WINDOW


def test_rule_04_known_position_with_another_nonce_starts_a_delta_at_once() -> None:
    history, bench = following()
    other = history.restored(history.point.position - 1)
    other.one()
    assert other.point.position == history.point.position
    bench.history = other
    bench.receive(other.reading())
    assert bench.state() is State.DELTA_DUE
    bench.wait()
    assert bench.running.causes == {"t": "history changed"}
    bench.answer()
    bench.wait()
    bench.answer()
    assert bench.known() == other.point


def test_rule_04_head_behind_known_from_a_later_reading_starts_a_delta_at_once() -> None:
    history, bench = following()
    lost = history.one()
    bench.feed(lost)
    bench.history = history.restored(lost.prev.position)
    bench.receive(bench.history.reading(), nonce=bench.ask().nonce)
    assert bench.state() is State.DELTA_DUE


@pytest.mark.parametrize("how", ["broadcast", "read before", "unknown request"])
def test_rule_04_other_head_behind_known_is_late(how: str) -> None:
    history, bench = following()
    reading = history.reading()
    nonce = bench.ask().nonce
    bench.wait(0.5)
    bench.feed(history.one())
    bench.receive(reading, nonce={"broadcast": "", "read before": nonce, "unknown request": "f" * 24}[how])
    assert bench.state() is State.FOLLOWING


def test_rule_04_age_of_the_reading_counts_not_the_time_of_the_request() -> None:
    history, bench = following()
    reading = history.reading()
    bench.feed(history.one())
    reached = bench.now
    nonce = bench.ask().nonce
    bench.receive(reading, nonce=nonce, age=bench.now - reached)
    assert bench.state() is State.FOLLOWING, "the reading began no later than known was reached"
    bench.receive(reading, nonce=nonce, age=bench.now - reached - 0.001)
    assert bench.state() is State.DELTA_DUE


def test_rule_04_changed_history_is_detected_when_it_is_ahead_of_known() -> None:
    history, bench = following()
    bench.feed(history.one())
    other = bench.history = history.restored(history.point.position - 1)
    other.some(3)
    bench.feed(other.links[-1])
    bench.wait(WINDOW)
    assert bench.answer() == []
    assert bench.state() is State.FULL_DUE
    bench.wait()
    bench.answer()
    assert bench.known() == other.point


# -- rule 5 ------------------------------------------------------------------------------------------------------


def test_rule_05_links_of_a_delta_must_connect() -> None:
    history, bench = following()
    links = history.some(4)
    bench.feed(links[1])
    bench.wait(WINDOW)
    reading = history.answer(bench.running.wants)
    assert bench.feed(links[0]) == links[:2]
    assert bench.answer(reading) == links[2:]


def test_rule_05_delta_with_head_behind_known_is_dropped() -> None:
    history, bench = following()
    links = history.some(2)
    bench.feed(links[1])
    bench.wait(WINDOW)
    reading = history.answer(bench.running.wants)
    later = history.one()
    assert bench.feed(links[0], later) == [*links, later]
    assert bench.answer(reading) == []
    assert bench.known() == later.point
    assert bench.state() is State.FOLLOWING


def test_rule_05_delta_that_does_not_lead_to_its_head_is_read_again() -> None:
    history, bench = following()
    other = history.restored(history.point.position)
    lost = history.some(2)
    bench.feed(lost[1])
    bench.wait(WINDOW)
    other.some(3)
    reading = other.answer(bench.running.wants)
    bench.history = other
    bench.feed(lost[0])
    assert bench.answer(reading) == []
    assert bench.state() is State.DELTA_DUE
    while bench.state() is not State.FOLLOWING:
        bench.wait()
        bench.answer()
    assert bench.known() == other.point


def test_rule_05_incomplete_delta_becomes_a_full_sync_at_once() -> None:
    timing = msgspec.structs.replace(CALM, sync_interval=60.0, sync_jitter=60.0)
    history = History()
    history.some(5)
    bench = Bench(history, known={"t": history.links[0].point}, timing=timing)
    history.trim(3)
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    bench.wait(60.0)
    bench.answer()
    bench.wait()
    assert bench.running.wants == {"t": Want()}


def in_full_sync() -> tuple[History, Bench]:
    history, bench = following()
    history.some(2)
    history.trim(history.point.position - 1)
    bench.receive(history.reading())
    bench.wait(WINDOW)
    bench.answer()
    assert bench.state() is State.FULL_DUE
    return history, bench


@pytest.mark.parametrize("begun", [False, True])
def test_rule_05_links_wait_while_a_full_sync_is_due_or_runs(begun: bool) -> None:
    history, bench = in_full_sync()
    known = bench.known()
    if begun:
        bench.wait()
    # A link that would connect, of the other half of a split history.
    twin = history.restored(2)
    assert bench.feed(twin.one(), history.links[-1]) == []
    assert bench.known() == known


def test_rule_05_answer_of_a_full_sync_counts_even_behind_known() -> None:
    history, bench = following()
    bench.feed(*history.some(5))
    bench.history = history.restored(1)
    bench.receive(bench.history.reading(), nonce=bench.ask().nonce)
    bench.wait()
    bench.answer()
    bench.wait()
    bench.answer()
    assert bench.known() == bench.history.point
    assert len(bench.replaced) == 2


def test_rule_05_known_becomes_the_topics_head_not_the_stores() -> None:
    history = History()
    mine = history.one()
    history.some(3, "other")
    bench = Bench(history).synced()
    assert bench.known() == mine.point
    later = history.one()
    assert bench.feed(later) == [later]


def test_rule_05_links_received_before_the_reading_are_dropped() -> None:
    history, bench = in_full_sync()
    foreign = history.restored(1).some(4)[-1]  # of an undone history; it would wait forever
    bench.feed(foreign)
    bench.receive(history.restored(1).reading())
    bench.wait()
    bench.answer()
    assert bench.state() is State.FOLLOWING
    assert len(bench.tracker.chain("t").reorder_buffer) == 0


def test_rule_05_delta_drops_the_head_of_a_lost_history_that_caused_it() -> None:
    history, bench = following()
    lost = history.restored(2)
    lost.some(7)
    bench.receive(lost.reading())
    bench.wait(WINDOW)
    bench.answer()
    bench.wait(2 * WINDOW)
    assert bench.state() is State.FOLLOWING
    assert len(bench.syncs) == 2, "one delta, not an endless series"


def test_rule_05_head_that_a_delta_reached_starts_no_clock_after_a_lost_head() -> None:
    """The lost head is before the reached one: as long as it stayed, the delta could not remove the reached one."""
    history, bench = following()
    lost = history.restored(history.point.position)
    lost.some(7)
    bench.receive(lost.reading())
    bench.wait(WINDOW)
    history.some(2)
    bench.receive(history.reading())
    bench.answer(history.answer(bench.running.wants))
    assert bench.known() == history.point
    assert bench.state() is State.FOLLOWING
    bench.wait(2 * WINDOW)
    assert len(bench.syncs) == 2, "no delta without a cause"


def test_rule_05_links_received_after_the_begin_of_the_reading_are_kept() -> None:
    history, bench = in_full_sync()
    bench.wait()
    reading = history.answer(bench.running.wants)
    links = history.some(3)
    bench.feed(links[0], links[2])
    assert bench.answer(reading) == [links[0]]
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == links[1:]


def test_rule_05_clock_of_a_link_that_the_sync_drops_ends_with_it() -> None:
    """The later link has replaced the dropped one, because both connect to one point in different histories."""
    history, bench = following()
    missing, waiting = history.some(2)
    bench.feed(waiting)
    bench.wait(WINDOW)
    assert bench.is_syncing()
    bench.wait(0.25 * WINDOW)
    later = History.restored(history, missing.point.position).one()
    bench.feed(later)
    bench.answer(history.restored(missing.prev.position).answer(bench.running.wants))
    assert bench.state() is State.HOLDING
    assert bench.tracker.next_time() == pytest.approx(bench.now + WINDOW)
    bench.wait(0.9 * WINDOW)
    assert len(bench.syncs) == 2, "no delta without a cause"
    bench.wait(0.1 * WINDOW)
    assert bench.running.causes == {"t": "expired"}


def test_rule_05_heads_received_during_a_full_sync_are_judged_after_it() -> None:
    history, bench = in_full_sync()
    bench.wait()
    reading = history.answer(bench.running.wants)
    link = history.one()
    bench.receive(history.reading())
    bench.answer(reading)
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == [link]


def test_rule_05_head_of_another_history_during_a_full_sync_starts_a_delta_at_once() -> None:
    history, bench = in_full_sync()
    bench.wait()
    reading = history.answer(bench.running.wants)
    bench.history = history.restored(history.point.position - 1)
    bench.history.one()
    bench.receive(bench.history.reading())
    bench.answer(reading)
    assert bench.state() is State.DELTA_DUE


@pytest.mark.parametrize("by_publisher", [True, False])
def test_rule_14_links_that_waited_for_an_answer_that_contradicts_are_read_instead(by_publisher: bool) -> None:
    """The publisher of the undone point may have sent them, and the caller excludes it only after this step."""
    history, bench = following()
    undone = history.restored(history.point.position).one()
    if by_publisher:
        bench.feed(undone)
    else:
        bench.history = history.restored(history.point.position)
        bench.history.one()
        bench.tracker.resync(["t"], bench.now)
        bench.wait()
        bench.answer()
        bench.history = history
    bench.tracker.verify(bench.now)
    bench.wait()
    bench.answer()  # no delta from there
    bench.wait()
    wants = {"t": Want(known=bench.known())}
    reading = history.answer(wants)
    assert reading.chains["t"].contains_known is False  # type: ignore[union-attr]
    true, false = history.one(), history.restored(history.point.position, seed=2).one()
    bench.feed(true, false)
    assert bench.answer(reading) == ([] if by_publisher else [true, false])
    if by_publisher:
        bench.wait()
        assert bench.running.causes == {"t": "history changed"}
        assert bench.answer() == [true]
        assert bench.tracker.counters.old == 2
        assert bench.state() is State.FOLLOWING


def test_rule_05_everything_is_replaced_in_one_step() -> None:
    history = History()
    history.commit(("a", "k", "1"), ("b", "k", "1"))
    bench = Bench(history, (ALL,)).synced()
    assert [each.chain for each in bench.replaced] == [ALL]
    assert bench.replaced[0].answer.topics.keys() == {"a", "b"}
    assert bench.known(ALL) == history.point


# -- rule 8 ------------------------------------------------------------------------------------------------------


def connected(bench: Bench) -> RequestHello:
    """Make a connection. Returns the hello request to which it leads."""
    asked = len(bench.requests)
    bench.tracker.connected(bench.now)
    while len(bench.requests) == asked:
        bench.wait(bench.tracker.next_time() - bench.now)
    return bench.requests[-1]


@pytest.mark.parametrize("everything", [False, True])
def test_rule_06_change_lost_before_a_connection_is_read_one_round_trip_after_the_reply(everything: bool) -> None:
    name = ALL if everything else "t"
    bench = Bench(history := History(), (name,)).synced()
    lost = history.one()
    began = bench.now
    request = connected(bench)
    assert request.topics == (name,)
    assert bench.now - began <= bench.timing.connect_jitter
    bench.now += 0.01
    bench.receive(history.reading(), nonce=request.nonce)
    assert bench.state(name) is State.HOLDING
    bench.wait(bench.tracker.next_time() - bench.now)
    assert bench.running.causes == {name: "reconnected"}
    assert bench.now - began <= bench.timing.connect_jitter + 0.02 + 1e-6
    assert bench.answer() == [lost]
    assert bench.state(name) is State.FOLLOWING


def test_rule_06_link_under_way_at_the_reply_needs_no_delta() -> None:
    """A busy reconnection: the head is beyond known because the link was sent after the connection."""
    bench = Bench(history := History()).synced()
    request = connected(bench)
    link = history.one()
    bench.now += 0.01
    bench.receive(history.reading(), nonce=request.nonce)
    bench.now += 0.009
    assert bench.feed(link) == [link]
    bench.wait(5.0 * bench.timing.message_delay_window)
    assert (bench.state(), bench.tracker.counters.deltas) == (State.FOLLOWING, {})


def test_rule_06_healthy_connection_leads_to_one_request_only() -> None:
    history, bench = following()
    asked = len(bench.requests)
    request = connected(bench)
    bench.receive(history.reading(), nonce=request.nonce)
    bench.wait(bench.timing.reading_age + bench.timing.connect_jitter)
    assert len(bench.requests) == asked + 1
    assert (bench.state(), bench.tracker.counters.deltas) == (State.FOLLOWING, {})


def test_rule_06_reply_from_a_reading_older_than_the_connection_is_not_enough() -> None:
    bench = Bench(history := History()).synced()
    before = history.reading()
    lost = history.one()
    asked = connected(bench)
    bench.receive(before, nonce=asked.nonce, age=bench.timing.reading_age)
    bench.wait(bench.timing.reading_age + bench.timing.connect_jitter)
    assert bench.requests[-1] != asked, "requested again when no reading can be that old any more"
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    bench.wait()
    bench.wait(bench.timing.sync_jitter)
    assert bench.running.causes == {"t": "reconnected"}
    assert bench.answer() == [lost]


def test_rule_06_replies_to_earlier_requests_and_broadcasts_wait_for_the_window() -> None:
    bench = Bench(history := History()).synced()
    request = bench.ask()
    history.one()
    bench.tracker.connected(bench.now + 1e-6)
    bench.receive(history.reading(), nonce=request.nonce)
    bench.receive(history.reading())
    until = bench.now + bench.timing.message_delay_window
    while bench.now < until - 0.01:
        assert bench.state() is State.HOLDING
        bench.wait(0.009)


def of_a_new_publisher(history: History) -> Heads:
    """The first broadcast of a publisher: it sent on no topic yet, so the hello has no head."""
    return Heads(history.point, {})


def hinted(bench: Bench, heads: Heads) -> list[RequestHello]:
    """The hello requests to which a broadcast hello leads within the jitter."""
    asked = len(bench.requests)
    bench.receive(heads)
    bench.wait(bench.timing.connect_jitter)
    return bench.requests[asked:]


def test_rule_06_store_point_beyond_the_covered_position_leads_to_a_request() -> None:
    """The last change of a dead publisher was lost. The publisher started after it never sent on that topic."""
    history = History()
    history.commit(("t", "k", "1"), ("u", "k", "1"))
    bench = Bench(history, ("t", "u"), timing=Timing(max_idle_time=20.0)).synced()
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    lost = history.one("t")
    (request,) = hinted(bench, of_a_new_publisher(history))
    assert request.topics == ("t", "u")
    bench.receive(history.reading(), nonce=request.nonce)
    bench.wait(bench.timing.message_delay_window)
    bench.wait(bench.timing.sync_jitter)
    assert bench.running.causes == {"t": "expired"}
    assert bench.answer() == [lost]


def test_rule_06_covered_store_point_leads_to_no_request() -> None:
    history, bench = following(topics=("t", "u"))
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    assert hinted(bench, of_a_new_publisher(history)) == []


def test_rule_06_request_has_only_unnamed_topics_that_may_be_behind() -> None:
    history = History()
    history.commit(("t", "k", "1"), ("u", "k", "1"), ("v", "k", "1"), ("w", "k", "1"))
    bench = Bench(history, ("t", "u", "v", "w"), timing=Timing(max_idle_time=20.0)).synced()
    bench.feed(history.one("w"), history.one("t"))  # of t up to here
    ahead = history.one("v", "k2")  # lost
    bench.feed(history.one("v", "k3"))  # waits, with its clock
    reading = Heads(history.point, {"u": history.heads["u"]})
    (request,) = hinted(bench, reading)
    assert request.topics == ("t", "w")
    assert bench.state("v") is State.HOLDING
    assert ahead not in bench.applied


def test_rule_06_topic_covered_before_the_request_is_left_out() -> None:
    history, bench = following(topics=("t", "u"))
    periodic = bench.ask()
    history.one("other")
    asked = len(bench.requests)
    bench.receive(of_a_new_publisher(history))
    bench.receive(history.reading(), nonce=periodic.nonce)
    bench.wait(bench.timing.connect_jitter)
    assert bench.requests[asked:] == []


def test_rule_06_idle_publishers_of_a_busy_store_cost_one_more_request_a_round() -> None:
    history = History()
    history.one()
    bench = Bench(history, timing=Timing(max_idle_time=5.0)).synced()
    bench.ask()
    asked, began = len(bench.requests), bench.now
    while bench.now < began + 50.0:
        history.one("other")
        bench.receive(of_a_new_publisher(history))
        bench.wait(0.1)
    assert len(bench.requests) - asked <= 2 * 10 + 1


def checked_chains(bench: Bench, heads: Heads, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of chains that the tracker checks for a broadcast hello."""
    looks: list[str] = []
    covered = Tracker._covered

    def look(self: Tracker, chain: Chain | None) -> int:
        looks.append("" if chain is None else chain.name)
        return covered(self, chain)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "_covered", look)
        bench.receive(heads)
    return len(looks)


def test_rule_06_idle_hellos_do_not_check_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = tuple(f"t{number}" for number in range(50))
    history, bench = following(topics=topics)
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    idle = of_a_new_publisher(history)
    assert checked_chains(bench, idle, monkeypatch) == 50
    assert [checked_chains(bench, idle, monkeypatch) for _ in range(3)] == [0, 0, 0]
    history.one("other")
    assert checked_chains(bench, of_a_new_publisher(history), monkeypatch) >= 50, "the store has a new point"


def test_rule_06_covered_point_is_checked_again_for_a_new_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    history, bench = following(topics=("t", "u"))
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    idle = of_a_new_publisher(history)
    assert checked_chains(bench, idle, monkeypatch) == 2
    assert checked_chains(bench, idle, monkeypatch) == 0
    bench.tracker.subscribe(["v"], bench.now)
    assert checked_chains(bench, idle, monkeypatch) >= 2


def test_rule_06_covered_point_is_checked_again_after_a_full_sync() -> None:
    """The store was restored and read; then it was restored again, to the later state."""
    history = History()
    history.one("t")
    before = history.restored(1)
    lost = history.one("t", "k2")
    bench = Bench(history, ("t",), timing=Timing(max_idle_time=20.0)).synced()
    ahead = of_a_new_publisher(history)
    assert hinted(bench, ahead) == []
    bench.tracker.resync(["t"], bench.now)
    bench.wait(bench.timing.sync_jitter + bench.timing.sync_interval)
    bench.answer(before.answer(bench.running.wants))
    assert bench.known("t") == before.point
    (request,) = hinted(bench, ahead)
    assert request.topics == ("t",)
    assert lost.point == ahead.store


def test_rule_06_goodbye_leads_to_no_request() -> None:
    history, bench = following()
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    history.one("other")
    asked = len(bench.requests)
    goodbye = hello(of_a_new_publisher(history))
    assert goodbye.hello is not None
    last = msgspec.structs.replace(goodbye, hello=msgspec.structs.replace(goodbye.hello, goodbye=True))
    bench.do(bench.tracker.feed(last, bench.now))
    bench.wait(bench.timing.connect_jitter)
    assert bench.requests[asked:] == []


def test_rule_06_replica_of_everything_starts_its_clock_without_a_request() -> None:
    bench = Bench(history := History(), (ALL,)).synced()
    history.one()
    assert hinted(bench, of_a_new_publisher(history)) == []
    assert bench.state(ALL) is State.HOLDING


def test_rule_06_lost_head_received_during_a_full_sync_is_read_after_it() -> None:
    bench = Bench(history := History()).synced()
    bench.tracker.resync(["t"], bench.now)
    bench.wait(bench.timing.sync_jitter)
    answer = history.answer(bench.running.wants)
    lost = history.one()
    request = connected(bench)
    bench.receive(history.reading(), nonce=request.nonce)
    bench.answer(answer)
    bench.wait()
    assert bench.tracker.chain("t").cause == "reconnected"
    bench.wait(bench.timing.sync_jitter + bench.timing.sync_interval)
    assert bench.answer() == [lost]


def test_rule_08_new_topic_waits_for_a_hello_reply_before_its_full_sync() -> None:
    history = History()
    history.some(2)
    bench = Bench(history)
    assert bench.requests[0].topics == ("t",)
    bench.wait(0.5 * CALM.hello_wait)
    assert bench.sync is None
    bench.receive(history.reading())
    bench.wait()
    assert bench.sync is None, "a broadcast is no proof of the subscription"
    bench.receive(history.reading(), nonce=bench.requests[0].nonce)
    bench.wait()
    assert bench.running.wants == {"t": Want()}


def test_rule_08_wait_for_a_hello_reply_is_bounded() -> None:
    bench = Bench(History())
    assert bench.tracker.next_time() <= bench.now + CALM.hello_wait
    bench.wait(CALM.hello_wait)
    assert bench.running.wants == {"t": Want()}


def test_rule_08_known_point_needs_a_delta_only() -> None:
    history = History()
    links = history.some(4)
    bench = Bench(history, known={"t": links[1].point})
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    bench.wait()
    assert bench.running.wants == {"t": Want(after=links[1].point)}
    assert bench.answer() == links[2:]


@pytest.mark.parametrize("at_hand", [False, True])
def test_rule_08_synced_only_when_the_first_sync_is_done(at_hand: bool) -> None:
    history = History()
    history.some(2)
    bench = Bench(history, known={"t": history.point} if at_hand else None)
    assert not bench.is_synced()
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    assert not bench.is_synced()
    bench.wait()
    assert not bench.is_synced()
    bench.fail()
    assert not bench.is_synced()
    bench.wait(10.0)
    bench.answer()
    assert bench.is_synced()
    bench.tracker.mismatched("t", bench.now)
    assert bench.is_synced(), "synced stays true after the first sync"


def test_rule_08_topics_added_and_dropped_while_running() -> None:
    history, bench = following()
    history.some(2, "u")
    bench.do(bench.tracker.subscribe(["u", "t"], bench.now))
    assert bench.requests[-1].topics == ("u",)
    assert not bench.is_synced()
    bench.synced()
    assert bench.known("u") == history.head("u")
    bench.tracker.unsubscribe("u")
    bench.tracker.unsubscribe("u")
    assert set(bench.tracker.topics) == {"t"}
    assert bench.feed(history.one("u")) == []
    assert bench.tracker.counters.unsubscribed == 1


def test_rule_08_unsubscribe_does_not_check_other_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise 8,000 topics dropped one by one would need 64,000,000 checks."""
    bench = Bench(History(), [f"t{number}" for number in range(50)]).synced()
    looks = 0

    class Counted(dict[str, object]):
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += len(self)
            return super().values()

    monkeypatch.setattr(bench.tracker, "_chains", Counted(bench.tracker._chains))
    for number in range(50):
        bench.tracker.unsubscribe(f"t{number}")
    assert looks == 0


def test_rule_08_need_ends_with_its_last_topic() -> None:
    _, bench = following()
    bench.do(bench.tracker.subscribe(["u", "v"], bench.now))
    bench.wait(CALM.hello_wait)
    bench.fail()
    bench.tracker.unsubscribe("u")
    waits = [bench.tracker.syncs.waits]
    bench.tracker.unsubscribe("v")
    waits.append(bench.tracker.syncs.waits)
    assert waits == [True, False]
    assert bench.state() is State.FOLLOWING


def test_rule_08_dropped_topic_leaves_no_clock() -> None:
    history, bench = following(topics=("t", "u"))
    _, ahead = history.some(2, "u")
    bench.feed(ahead)
    assert bench.state("u") is State.HOLDING
    bench.tracker.unsubscribe("u")
    assert not bench.tracker.restless
    bench.wait(WINDOW)
    bench.wait(CALM.sync_interval)
    assert not bench.is_syncing()
    assert bench.tracker.next_time() > bench.now
    assert bench.tracker.counters.deltas == {}


def test_rule_08_hello_reply_greets_only_the_topics_of_its_request() -> None:
    history, bench = following()
    history.one("u")
    asked = bench.ask()
    bench.do(bench.tracker.subscribe(["u"], bench.now))
    bench.receive(history.reading(), nonce=asked.nonce)  # the publisher answered before it had the subscription to u
    assert bench.state("u") is State.JOINING
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    assert bench.state("u") is State.FULL_DUE


def test_rule_08_reply_to_a_request_of_before_an_unsubscribe_does_not_greet_the_topic() -> None:
    history, bench = following()
    history.one("u")
    bench.do(bench.tracker.subscribe(["u"], bench.now))
    early = bench.requests[-1]
    bench.tracker.unsubscribe("u")
    bench.do(bench.tracker.subscribe(["u"], bench.now))
    bench.receive(history.reading(), nonce=early.nonce)  # the publisher answered before it had the second subscription
    assert bench.state("u") is State.JOINING
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    assert bench.state("u") is State.FULL_DUE


def test_rule_08_topic_followed_again_during_its_sync_ignores_the_answer() -> None:
    history, bench = following()
    history.some(2, "u")
    bench.do(bench.tracker.subscribe(["u"], bench.now))
    bench.wait(CALM.hello_wait)
    bench.tracker.unsubscribe("u")
    bench.do(bench.tracker.subscribe(["u"], bench.now))
    bench.answer()
    assert bench.state("u") is State.JOINING
    bench.wait(CALM.hello_wait)
    bench.answer()
    assert bench.known("u") == history.head("u")


# -- rule 10 -----------------------------------------------------------------------------------------------------


def test_rule_10_mismatch_fetches_differing_buckets_then_everything() -> None:
    _, bench = following()
    bench.tracker.mismatched("t", bench.now)
    bench.wait()
    assert bench.running.wants == {"t": Want(buckets={})}
    bench.answer()
    bench.tracker.mismatched("t", bench.now)
    bench.wait()
    assert bench.running.wants == {"t": Want()}
    bench.answer()
    assert bench.state() is State.FOLLOWING


def test_rule_10_persistent_mismatch_is_read_with_backoff_while_links_go_on() -> None:
    history, bench = following(topics=("t", "other"))
    bench.tracker.mismatched("t", bench.now)
    began, whole = [], []
    until = bench.now + 600.0
    while bench.now < until:
        bench.wait(max(0.0, bench.tracker.next_time() - bench.now))
        if bench.sync is not None:
            want = bench.sync.wants.get("t")
            bench.answer()
            if want is not None and want.after is None:  # otherwise the chain is only polled
                began.append(bench.now)
                whole.append(want.buckets is None)
                bench.tracker.mismatched("t", bench.now)
                assert bench.state() is bench.state("other") is State.FOLLOWING or len(began) == 1
    assert whole[:4] == [False, True, False, False], "everything once; then only the differing buckets"
    waits = [after - before for before, after in itertools.pairwise(began)]
    assert waits[:7] == pytest.approx([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, CALM.max_sync_backoff])
    assert waits[6:] == pytest.approx([CALM.max_sync_backoff] * len(waits[6:]))
    assert list(bench.tracker.mismatching) == ["t"]
    link = history.one()
    assert bench.feed(link) == [link]
    bench.tracker.mismatched("t", bench.now)
    assert bench.state() is State.FOLLOWING, "the next reading is due later"


def test_rule_10_persistent_mismatch_ends_with_a_fitting_answer() -> None:
    _, bench = following()
    for _ in range(2):
        bench.tracker.resync(["t"], bench.now)
        bench.wait()
        bench.answer()
        bench.tracker.mismatched("t", bench.now)
        assert list(bench.tracker.mismatching) == ["t"]
        bench.wait(CALM.sync_backoff)
        assert bench.running.wants == {"t": Want(buckets={})}
        bench.answer()
        assert list(bench.tracker.mismatching) == []
        bench.wait(0.1)


def test_rule_10_mismatching_topic_can_be_dropped() -> None:
    _, bench = following()
    bench.tracker.resync(["t"], bench.now)
    bench.wait()
    bench.answer()
    bench.tracker.mismatched("t", bench.now)
    bench.tracker.unsubscribe("t")
    assert list(bench.tracker.mismatching) == []
    bench.wait(CALM.sync_backoff)
    assert bench.sync is None


def test_rule_10_links_wait_while_a_mismatch_is_repaired() -> None:
    history, bench = following()
    bench.tracker.mismatched("t", bench.now)
    assert bench.feed(history.one()) == []


def test_rule_10_repair_applies_received_links_first() -> None:
    history, bench = following()
    bench.tracker.mismatched("t", bench.now)
    links = history.some(3)
    assert bench.feed(*links) == []
    bench.wait(CALM.sync_interval + CALM.sync_jitter)
    assert bench.is_syncing()
    assert bench.applied[-3:] == links, "otherwise their buckets differ and are read too"
    assert bench.known() == links[-1].point
    later = history.one()
    assert bench.feed(later) == [], "known does not change while the sync runs"
    bench.answer()
    assert bench.known() == later.point


def test_rule_10_mismatch_during_a_delta_needs_a_full_sync() -> None:
    history, bench = following()
    history.one()
    bench.receive(history.reading())
    bench.wait(WINDOW)
    bench.tracker.mismatched("t", bench.now)
    bench.answer()
    assert bench.state() is State.FULL_DUE


def test_rule_10_a_replica_of_everything_fetches_differing_buckets_too() -> None:
    _, bench = following(topics=(ALL,))
    bench.tracker.mismatched("some topic", bench.now)
    bench.wait()
    assert bench.running.wants == {ALL: Want(buckets={})}


def test_rule_10_mismatch_of_a_dropped_topic_is_ignored() -> None:
    _, bench = following()
    bench.tracker.mismatched("gone", bench.now)
    assert bench.state() is State.FOLLOWING


# -- resync ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t", ALL])
def test_resync_reads_again_and_counts_as_asked(name: str) -> None:
    _, bench = following(topics=(name,))
    for times in (1, 2):  # and again, without changes in between
        bench.tracker.resync([name], bench.now)
        bench.wait()
        assert bench.running.wants == {name: Want()}
        bench.answer()
        assert bench.state(name) is State.FOLLOWING
        assert bench.tracker.counters.fulls["asked"] == times


def test_resync_while_a_repair_is_due_reads_everything() -> None:
    _, bench = following()
    bench.tracker.mismatched("t", bench.now)
    bench.tracker.resync(["t"], bench.now)
    bench.wait()
    assert bench.running.wants == {"t": Want()}


def test_resync_during_a_full_sync_has_no_effect() -> None:
    history = History()
    bench = Bench(history)
    bench.tracker.resync(["t"], bench.now)
    assert bench.state() is State.JOINING
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    bench.tracker.resync(["t"], bench.now)
    assert bench.state() is State.FULL_DUE
    bench.wait()
    bench.tracker.resync(["t"], bench.now)
    bench.answer()
    assert (bench.state(), bench.tracker.syncs.waits) == (State.FOLLOWING, False)


# -- rule 12, and the contract with the caller -------------------------------------------------------------------


def test_rule_12_same_input_gives_the_same_effects() -> None:
    def run() -> list[str]:
        history = History()
        bench = Bench(history).synced()
        links = history.some(9)
        rng = random.Random(3)
        rng.shuffle(links)
        bench.feed(*links[3:])
        bench.wait(WINDOW)
        bench.answer()
        bench.ask()
        return [str(bench.syncs), str(bench.requests), str(bench.applied)]

    assert run() == run()


def test_rule_12_tracker_without_topics_has_nothing_due() -> None:
    tracker = Tracker(CALM, Limits(), random.Random(0), 100.0)
    assert tracker.next_time() == float("inf"), "a caller that sleeps until then must not loop busily"
    assert tracker.tick(200.0) == []
    _, bench = following()
    bench.tracker.unsubscribe("t")
    assert bench.tracker.next_time() == float("inf")


def test_rule_07_tracker_without_topics_is_infinitely_stale() -> None:
    new = Tracker(CALM, Limits(), random.Random(0), 100.0)
    history, bench = following()
    history.one()
    bench.tracker.unsubscribe("t")
    for tracker in (new, bench.tracker):
        assert not tracker.synced
        assert tracker.staleness(200.0) == float("inf")
        assert tracker.covered() == 0
        assert tracker.covered(["t"]) == 0


def test_covered_of_an_unfollowed_topic_is_0() -> None:
    history = History()
    history.some(2)
    bench = Bench(history).synced()
    assert bench.tracker.covered(["t"]) == 2
    assert bench.tracker.covered(["t", "other"]) == 0


def test_rule_12_next_time_is_never_late_and_never_loops_busily() -> None:
    history, bench = following()
    history.some(3)
    bench.feed(history.links[-1])
    for _ in range(100):
        until = bench.tracker.next_time()
        assert until > bench.now
        bench.wait(until - bench.now)
        if bench.sync is not None:
            bench.answer()
    assert bench.known() == history.point


def test_envelope_of_several_messages_is_applied_at_once() -> None:
    history, bench = following()
    links = history.some(3)
    effects = bench.tracker.feed(envelope(*links), bench.now)
    assert len(effects) == 1
    bench.do(effects)
    assert bench.applied == links


def test_late_answers_and_failures_are_counted_and_ignored() -> None:
    history, bench = following()
    history.one()
    bench.receive(history.reading())
    bench.wait(WINDOW)
    number, reading = bench.running.number, history.answer(bench.running.wants)
    bench.sync = None
    bench.wait(CALM.sync_timeout)
    assert bench.state() is State.DELTA_DUE
    assert bench.tracker.sync_done(number, reading, bench.now) == []
    bench.tracker.sync_failed(number, bench.now)
    assert bench.tracker.counters.late_answers == 2
    assert bench.tracker.counters.syncs_failed == 1


def test_covered_is_the_minimum_of_the_followed_topics() -> None:
    history = History()
    history.some(2, "a")
    history.some(3, "b")
    bench = Bench(history, ("a", "b"))
    assert bench.tracker.covered() == 0
    bench.synced()
    assert bench.tracker.covered() == 5, "the sync proved that a has no later change up to the store's position"
    bench.feed(history.one("b"))
    assert bench.tracker.covered(["b"]) == 6
    assert bench.tracker.covered() == 5
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    assert bench.tracker.covered() == 6
    bench.tracker.mismatched("a", bench.now)
    assert bench.tracker.covered() == 0


def test_covered_restarts_in_another_history() -> None:
    history = History()
    history.some(9)
    bench = Bench(history).synced()
    bench.history = history.restored(2)
    bench.receive(bench.history.reading(), nonce=bench.ask().nonce)
    bench.wait()
    bench.answer()
    bench.wait()
    bench.answer()
    assert bench.tracker.covered() == 2


def test_covered_goes_back_with_a_restore_to_a_known_point() -> None:
    history = History()
    history.one()
    history.some(9, "other")
    bench = Bench(history).synced()
    assert bench.tracker.covered() == 10
    restored = history.restored(3)
    bench.receive(restored.reading(), nonce=bench.ask().nonce)
    assert bench.state() is State.FOLLOWING, "the restore did not change this topic"
    restored.some(2)
    assert bench.tracker.covered() == 3, "the replica does not have its change at position 4"


def test_empty_topic_is_followed_from_its_first_link() -> None:
    history = History()
    bench = Bench(history).synced()
    assert bench.known() == ZERO
    link = history.one()
    assert bench.feed(link) == [link]


def test_rule_04_head_of_a_changed_history_is_no_proof_of_freshness() -> None:
    history, bench = following()
    lost = history.one()
    bench.feed(lost)
    bench.history = history.restored(lost.prev.position)
    nonce = bench.ask().nonce
    before = bench.staleness()
    bench.receive(bench.history.reading(), nonce=nonce)
    assert bench.state() is State.DELTA_DUE
    assert bench.staleness() == before, "the replica's contents differ from the store's"


def test_rule_01_backward_link_is_foreign() -> None:
    # The codec refuses such a link of a topic; the chain of everything uses the transactions' points.
    history, bench = following(topics=(ALL,))
    history.some(3)
    bench = Bench(history, (ALL,)).synced()
    link = history.one()
    wrong = msgspec.structs.replace(link, point=Point(1, 1), tx_prev=link.point, tx_links=2)
    bench.tracker.mismatched("t", bench.now)  # links wait now
    bench.wait()
    bench.feed(wrong)
    bench.answer()
    assert bench.known(ALL) == link.point
    assert bench.tracker.counters.foreign == 1
