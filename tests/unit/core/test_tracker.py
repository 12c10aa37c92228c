"""The tracker against rules 1 to 13, one by one, in virtual time. Rules 6, 7: test_liveness; 9:
test_syncing; 11: test_sequence_gaps; 13: test_timing; all of them together, at random: test_follower.
"""

import itertools
import random

import msgspec
import pytest

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.effects import RequestHello
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Heads, Point, Want
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.transitions import State
from tests.unit.core.builders import CALM, Bench, History, envelope, hello, run_of

WINDOW = CALM.message_delay_window
THREE = Limits(max_waiting_links=3)


def following(limits: Limits = Limits(), topics: tuple[str, ...] = ("t",)) -> tuple[History, Bench]:  # noqa: B008
    """A store with something in it, and a replica that has all of it."""
    history = History()
    for topic in topics:
        if topic != ALL:
            history.some(2, topic)
    return history, Bench(history, topics, limits=limits).synced()


# -- rule 1 ------------------------------------------------------------------------------------------------------


def test_rule_01_a_link_that_connects_is_applied_at_once() -> None:
    history, bench = following()
    link = history.one()
    assert bench.feed(link) == [link]
    assert bench.known() == link.point
    assert bench.state() is State.FOLLOWING


def test_rule_01_a_link_ahead_of_a_hole_waits_and_is_applied_after_it() -> None:
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


def test_rule_01_a_run_of_parts_counts_only_when_complete() -> None:
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


def test_rule_01_parts_of_runs_that_were_cut_differently_never_mix() -> None:
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


def test_rule_01_a_replica_of_everything_sees_a_new_topics_only_message() -> None:
    history, bench = following(topics=(ALL,))
    link = history.one("never seen before")
    assert bench.feed(link) == [link]


def test_rule_01_a_replica_of_topics_does_not_wait_for_others() -> None:
    history, bench = following()
    _, mine = history.commit(("other", "k", "1"), ("t", "k", "1"))
    history.one("other")
    later = history.one()
    assert bench.feed(mine, later) == [mine, later]


# -- rule 2 ------------------------------------------------------------------------------------------------------


def test_rule_02_at_or_behind_known_is_old_and_counted() -> None:
    history, bench = following()
    links = history.some(2)
    bench.feed(*links)
    assert bench.feed(*links) == []
    assert bench.tracker.counters.old == 2
    assert bench.tracker.counters.waited == 0


def test_rule_02_knowns_position_with_another_nonce_is_foreign_and_counted() -> None:
    history, bench = following()
    twin = history.restored(history.point.position)
    bench.feed(history.one())
    assert bench.feed(twin.one()) == []
    assert bench.tracker.counters.foreign == 1


def test_rule_02_waiting_is_bounded_and_overflow_schedules_a_delta() -> None:
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


def test_rule_02_waiting_is_bounded_in_bytes() -> None:
    history, bench = following(Limits(max_waiting_bytes=size_of(History().one(value='"12345"')) + 10))
    _, second, third = history.one(), history.one(value='"12345"'), history.one(value='"12345"')
    bench.feed(second)
    assert bench.state() is State.HOLDING
    bench.feed(third)
    assert bench.state() is State.DELTA_DUE


@pytest.mark.parametrize("full", [False, True])
def test_rule_02_overflow_during_a_sync_never_restarts_it_and_is_remembered(full: bool) -> None:
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


def test_rule_02_a_connecting_link_needs_no_room() -> None:
    history, bench = following(Limits(max_waiting_links=1))
    first, _, third = history.some(3)
    bench.feed(third)
    assert bench.feed(first) == [first]


# -- rule 3 ------------------------------------------------------------------------------------------------------


def test_rule_03_clock_belongs_to_the_oldest_waiting_link() -> None:
    history, bench = following()
    links = history.some(6)
    bench.feed(links[1])
    bench.wait(0.7 * WINDOW)
    bench.feed(links[2], links[5])
    assert bench.tracker.next_time() == pytest.approx(bench.now + 0.3 * WINDOW)
    bench.wait(0.3 * WINDOW)
    assert bench.running.wants == {"t": Want(after=links[0].prev)}
    assert bench.running.causes == {"t": "expired"}


def test_rule_03_the_clock_goes_on_for_the_rest_when_the_oldest_connects() -> None:
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


def test_rule_03_the_clock_stops_when_nothing_waits() -> None:
    history, bench = following()
    first, second = history.some(2)
    bench.feed(second)
    bench.wait(0.9 * WINDOW)
    bench.feed(first)
    bench.wait(0.2 * WINDOW)
    assert bench.sync is None
    assert bench.syncs[1:] == []


def test_rule_03_a_repeated_waiting_link_does_not_restart_the_clock() -> None:
    history, bench = following()
    _, second = history.some(2)
    bench.feed(second)
    for _ in range(4):
        bench.wait(0.2 * WINDOW)
        bench.feed(second)
    bench.wait(0.2 * WINDOW + 1e-9)
    assert bench.running.causes == {"t": "expired"}


def test_rule_03_a_hellos_head_beyond_known_starts_the_clock() -> None:
    history, bench = following()
    link = history.one()
    bench.hear(history.reading())
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == [link]
    assert bench.state() is State.FOLLOWING


def test_rule_03_a_hellos_head_that_links_reach_starts_nothing() -> None:
    history, bench = following()
    links = history.some(2)
    bench.hear(history.reading())
    bench.feed(*links)
    bench.wait(2 * WINDOW)
    assert bench.sync is None


def test_rule_03_heads_without_number_cannot_hide_the_newest() -> None:
    # All of these are remembered while a full sync runs; the store's answer is older than the last of them only.
    history, bench = following()
    bench.tracker.mismatched("t", bench.now)
    bench.wait()
    reading = history.answer(bench.running.wants)
    told = history.reading()
    for _ in range(200):
        bench.hear(told)
    link = history.one()
    bench.hear(history.reading())
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


def test_rule_03_nothing_starts_a_delta_without_cause() -> None:
    history, bench = following()
    for _ in range(50):
        bench.feed(history.one())
        bench.hear(history.reading(), nonce=bench.ask().nonce)
        bench.wait(1.0)
    assert len(bench.syncs) == 1


# -- rule 4 ------------------------------------------------------------------------------------------------------


def test_rule_04_a_hello_whose_head_is_known_is_nothing_to_do() -> None:
    history, bench = following()
    bench.hear(history.reading())
    assert bench.state() is State.FOLLOWING
    assert bench.tracker.next_time() > bench.now + WINDOW


def test_rule_04_knowns_position_with_another_nonce_is_a_delta_at_once() -> None:
    history, bench = following()
    other = history.restored(history.point.position - 1)
    other.one()
    assert other.point.position == history.point.position
    bench.history = other
    bench.hear(other.reading())
    assert bench.state() is State.DELTA_DUE
    bench.wait()
    assert bench.running.causes == {"t": "history changed"}
    bench.answer()
    bench.wait()
    bench.answer()
    assert bench.known() == other.point


def test_rule_04_behind_known_although_read_after_known_was_reached_is_a_delta_at_once() -> None:
    history, bench = following()
    lost = history.one()
    bench.feed(lost)
    bench.history = history.restored(lost.prev.position)
    bench.hear(bench.history.reading(), nonce=bench.ask().nonce)
    assert bench.state() is State.DELTA_DUE


@pytest.mark.parametrize("how", ["broadcast", "read before", "unknown question"])
def test_rule_04_behind_known_otherwise_is_late(how: str) -> None:
    history, bench = following()
    reading = history.reading()
    nonce = bench.ask().nonce
    bench.wait(0.5)
    bench.feed(history.one())
    bench.hear(reading, nonce={"broadcast": "", "read before": nonce, "unknown question": "f" * 24}[how])
    assert bench.state() is State.FOLLOWING


def test_rule_04_the_readings_age_counts_not_the_questions_time() -> None:
    history, bench = following()
    reading = history.reading()
    bench.feed(history.one())
    reached = bench.now
    nonce = bench.ask().nonce
    bench.hear(reading, nonce=nonce, age=bench.now - reached)
    assert bench.state() is State.FOLLOWING, "the reading began no later than known was reached"
    bench.hear(reading, nonce=nonce, age=bench.now - reached - 0.001)
    assert bench.state() is State.DELTA_DUE


def test_rule_04_a_changed_history_is_found_also_when_it_overtook_known() -> None:
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


def test_rule_05_a_deltas_links_connect_like_all_others() -> None:
    history, bench = following()
    links = history.some(4)
    bench.feed(links[1])
    bench.wait(WINDOW)
    reading = history.answer(bench.running.wants)
    assert bench.feed(links[0]) == links[:2]
    assert bench.answer(reading) == links[2:]


def test_rule_05_a_delta_whose_head_is_behind_known_is_dropped() -> None:
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


def test_rule_05_a_delta_that_does_not_lead_to_its_head_is_asked_again() -> None:
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


def test_rule_05_an_incomplete_delta_becomes_a_full_sync_without_waiting_its_turn_again() -> None:
    timing = msgspec.structs.replace(CALM, sync_interval=60.0, sync_jitter=60.0)
    history = History()
    history.some(5)
    bench = Bench(history, known={"t": history.links[0].point}, timing=timing)
    history.trim(3)
    bench.hear(history.reading(), nonce=bench.questions[-1].nonce)
    bench.wait(60.0)
    bench.answer()
    bench.wait()
    assert bench.running.wants == {"t": Want()}


def in_full_sync() -> tuple[History, Bench]:
    history, bench = following()
    history.some(2)
    history.trim(history.point.position - 1)
    bench.hear(history.reading())
    bench.wait(WINDOW)
    bench.answer()
    assert bench.state() is State.FULL_DUE
    return history, bench


@pytest.mark.parametrize("begun", [False, True])
def test_rule_05_links_wait_and_known_stands_still_while_a_full_sync_is_due_or_runs(begun: bool) -> None:
    history, bench = in_full_sync()
    known = bench.known()
    if begun:
        bench.wait()
    # A link that would connect, of the other half of a split history.
    twin = history.restored(2)
    assert bench.feed(twin.one(), history.links[-1]) == []
    assert bench.known() == known


def test_rule_05_a_full_syncs_answer_always_counts_even_behind_known() -> None:
    history, bench = following()
    bench.feed(*history.some(5))
    bench.history = history.restored(1)
    bench.hear(bench.history.reading(), nonce=bench.ask().nonce)
    bench.wait()
    bench.answer()
    bench.wait()
    bench.answer()
    assert bench.known() == bench.history.point
    assert len(bench.replaced) == 2


def test_rule_05_known_is_the_topics_head_not_the_stores() -> None:
    history = History()
    mine = history.one()
    history.some(3, "other")
    bench = Bench(history).synced()
    assert bench.known() == mine.point
    later = history.one()
    assert bench.feed(later) == [later]


def test_rule_05_what_was_received_before_the_reading_began_is_dropped() -> None:
    history, bench = in_full_sync()
    stray = history.restored(1).some(4)[-1]  # of a history that is no more; it would wait for ever
    bench.feed(stray)
    bench.hear(history.restored(1).reading())
    bench.wait()
    bench.answer()
    assert bench.state() is State.FOLLOWING
    assert len(bench.tracker.chain("t").reorder_buffer) == 0


def test_rule_05_a_head_of_a_lost_history_is_dropped_by_the_delta_that_it_caused() -> None:
    history, bench = following()
    lost = history.restored(2)
    lost.some(7)
    bench.hear(lost.reading())
    bench.wait(WINDOW)
    bench.answer()
    bench.wait(2 * WINDOW)
    assert bench.state() is State.FOLLOWING
    assert len(bench.syncs) == 2, "one delta, not one after the other without end"


def test_rule_05_what_was_received_after_the_reading_began_is_kept() -> None:
    history, bench = in_full_sync()
    bench.wait()
    reading = history.answer(bench.running.wants)
    links = history.some(3)
    bench.feed(links[0], links[2])
    assert bench.answer(reading) == [links[0]]
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == links[1:]


def test_rule_05_heads_told_while_a_full_sync_ran_are_judged_after_it() -> None:
    history, bench = in_full_sync()
    bench.wait()
    reading = history.answer(bench.running.wants)
    link = history.one()
    bench.hear(history.reading())
    bench.answer(reading)
    assert bench.state() is State.HOLDING
    bench.wait(WINDOW)
    assert bench.answer() == [link]


def test_rule_05_a_head_of_another_history_told_while_a_full_sync_ran_is_a_delta_at_once() -> None:
    history, bench = in_full_sync()
    bench.wait()
    reading = history.answer(bench.running.wants)
    bench.history = history.restored(history.point.position - 1)
    bench.history.one()
    bench.hear(bench.history.reading())
    bench.answer(reading)
    assert bench.state() is State.DELTA_DUE


def test_rule_05_everything_is_replaced_in_one_step() -> None:
    history = History()
    history.commit(("a", "k", "1"), ("b", "k", "1"))
    bench = Bench(history, (ALL,)).synced()
    assert [each.chain for each in bench.replaced] == [ALL]
    assert bench.replaced[0].answer.topics.keys() == {"a", "b"}
    assert bench.known(ALL) == history.point


# -- rule 8 ------------------------------------------------------------------------------------------------------


def connected(bench: Bench) -> RequestHello:
    """A connection is there; the question that this leads to."""
    asked = len(bench.questions)
    bench.tracker.connected(bench.now)
    while len(bench.questions) == asked:
        bench.wait(bench.tracker.next_time() - bench.now)
    return bench.questions[-1]


@pytest.mark.parametrize("everything", [False, True])
def test_rule_06_what_was_lost_before_a_connection_is_read_one_round_trip_after_its_answer(everything: bool) -> None:
    name = ALL if everything else "t"
    bench = Bench(history := History(), (name,)).synced()
    lost = history.one()
    began = bench.now
    question = connected(bench)
    assert question.topics == (name,)
    assert bench.now - began <= bench.timing.connect_jitter
    bench.now += 0.01
    bench.hear(history.reading(), nonce=question.nonce)
    assert bench.state(name) is State.HOLDING
    bench.wait(bench.tracker.next_time() - bench.now)
    assert bench.running.causes == {name: "reconnected"}
    assert bench.now - began <= bench.timing.connect_jitter + 0.02 + 1e-6
    assert bench.answer() == [lost]
    assert bench.state(name) is State.FOLLOWING


def test_rule_06_what_is_on_its_way_when_the_answer_comes_needs_no_delta() -> None:
    """A busy reconnection: the head is beyond known because the link was sent after the connection."""
    bench = Bench(history := History()).synced()
    question = connected(bench)
    link = history.one()
    bench.now += 0.01
    bench.hear(history.reading(), nonce=question.nonce)
    bench.now += 0.009
    assert bench.feed(link) == [link]
    bench.wait(5.0 * bench.timing.message_delay_window)
    assert (bench.state(), bench.tracker.counters.deltas) == (State.FOLLOWING, {})


def test_rule_06_a_healthy_connection_costs_one_question_and_nothing_else() -> None:
    history, bench = following()
    asked = len(bench.questions)
    question = connected(bench)
    bench.hear(history.reading(), nonce=question.nonce)
    bench.wait(bench.timing.reading_age + bench.timing.connect_jitter)
    assert len(bench.questions) == asked + 1
    assert (bench.state(), bench.tracker.counters.deltas) == (State.FOLLOWING, {})


def test_rule_06_an_answer_from_a_reading_older_than_the_connection_ends_nothing() -> None:
    bench = Bench(history := History()).synced()
    before = history.reading()
    lost = history.one()
    asked = connected(bench)
    bench.hear(before, nonce=asked.nonce, age=bench.timing.reading_age)
    bench.wait(bench.timing.reading_age + bench.timing.connect_jitter)
    assert bench.questions[-1] != asked, "asked again when no reading can be so old any more"
    bench.hear(history.reading(), nonce=bench.questions[-1].nonce)
    bench.wait()
    bench.wait(bench.timing.sync_jitter)
    assert bench.running.causes == {"t": "reconnected"}
    assert bench.answer() == [lost]


def test_rule_06_answers_to_earlier_questions_and_broadcast_hellos_wait_for_the_window() -> None:
    bench = Bench(history := History()).synced()
    question = bench.ask()
    history.one()
    bench.tracker.connected(bench.now + 1e-6)
    bench.hear(history.reading(), nonce=question.nonce)
    bench.hear(history.reading())
    until = bench.now + bench.timing.message_delay_window
    while bench.now < until - 0.01:
        assert bench.state() is State.HOLDING
        bench.wait(0.009)


def of_a_new_publisher(history: History) -> Heads:
    """What a publisher says at its start: it sent on no topic yet, so it names no head."""
    return Heads(history.point, {})


def hinted(bench: Bench, heads: Heads) -> list[RequestHello]:
    """The questions to which a broadcast hello leads within the jitter."""
    asked = len(bench.questions)
    bench.hear(heads)
    bench.wait(bench.timing.connect_jitter)
    return bench.questions[asked:]


def test_rule_06_a_stores_point_beyond_what_is_covered_is_asked_about() -> None:
    """The last change of a publisher that died was lost. The one that is started after it never sent on that topic."""
    history = History()
    history.commit(("t", "k", "1"), ("u", "k", "1"))
    bench = Bench(history, ("t", "u"), timing=Timing(max_idle_time=20.0)).synced()
    bench.hear(history.reading(), nonce=bench.ask().nonce)
    lost = history.one("t")
    (question,) = hinted(bench, of_a_new_publisher(history))
    assert question.topics == ("t", "u")
    bench.hear(history.reading(), nonce=question.nonce)
    bench.wait(bench.timing.message_delay_window)
    bench.wait(bench.timing.sync_jitter)
    assert bench.running.causes == {"t": "expired"}
    assert bench.answer() == [lost]


def test_rule_06_a_stores_point_that_is_covered_leads_to_nothing() -> None:
    history, bench = following(topics=("t", "u"))
    bench.hear(history.reading(), nonce=bench.ask().nonce)
    assert hinted(bench, of_a_new_publisher(history)) == []


def test_rule_06_only_topics_that_the_hello_does_not_name_and_that_may_be_behind_are_asked_about() -> None:
    history = History()
    history.commit(("t", "k", "1"), ("u", "k", "1"), ("v", "k", "1"), ("w", "k", "1"))
    bench = Bench(history, ("t", "u", "v", "w"), timing=Timing(max_idle_time=20.0)).synced()
    bench.feed(history.one("w"), history.one("t"))  # of t up to here
    ahead = history.one("v", "k2")  # lost
    bench.feed(history.one("v", "k3"))  # waits, with its clock
    reading = Heads(history.point, {"u": history.heads["u"]})
    (question,) = hinted(bench, reading)
    assert question.topics == ("t", "w")
    assert bench.state("v") is State.HOLDING
    assert ahead not in bench.applied


def test_rule_06_what_was_covered_before_the_question_went_out_is_not_asked_about() -> None:
    history, bench = following(topics=("t", "u"))
    periodic = bench.ask()
    history.one("other")
    asked = len(bench.questions)
    bench.hear(of_a_new_publisher(history))
    bench.hear(history.reading(), nonce=periodic.nonce)
    bench.wait(bench.timing.connect_jitter)
    assert bench.questions[asked:] == []


def test_rule_06_many_idle_publishers_of_a_busy_store_cost_one_question_more_a_round() -> None:
    history = History()
    history.one()
    bench = Bench(history, timing=Timing(max_idle_time=5.0)).synced()
    bench.ask()
    asked, began = len(bench.questions), bench.now
    while bench.now < began + 50.0:
        history.one("other")
        bench.hear(of_a_new_publisher(history))
        bench.wait(0.1)
    assert len(bench.questions) - asked <= 2 * 10 + 1


def looked_at(bench: Bench, heads: Heads, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many chains a broadcast hello made the tracker look at."""
    looks: list[str] = []
    covered = Tracker._covered

    def look(self: Tracker, chain: Chain | None) -> int:
        looks.append("" if chain is None else chain.name)
        return covered(self, chain)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "_covered", look)
        bench.hear(heads)
    return len(looks)


def test_rule_06_idle_hellos_cost_no_look_at_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = tuple(f"t{number}" for number in range(50))
    history, bench = following(topics=topics)
    bench.hear(history.reading(), nonce=bench.ask().nonce)
    idle = of_a_new_publisher(history)
    assert looked_at(bench, idle, monkeypatch) == 50
    assert [looked_at(bench, idle, monkeypatch) for _ in range(3)] == [0, 0, 0]
    history.one("other")
    assert looked_at(bench, of_a_new_publisher(history), monkeypatch) >= 50, "the store went on"


def test_rule_06_a_point_that_was_covered_is_looked_at_again_for_a_new_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    history, bench = following(topics=("t", "u"))
    bench.hear(history.reading(), nonce=bench.ask().nonce)
    idle = of_a_new_publisher(history)
    assert looked_at(bench, idle, monkeypatch) == 2
    assert looked_at(bench, idle, monkeypatch) == 0
    bench.tracker.subscribe(["v"], bench.now)
    assert looked_at(bench, idle, monkeypatch) >= 2


def test_rule_06_a_point_that_was_covered_is_looked_at_again_after_a_full_sync() -> None:
    """The store was restored, and read; then it was restored once more, to where it had been before."""
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
    (question,) = hinted(bench, ahead)
    assert question.topics == ("t",)
    assert lost.point == ahead.store


def test_rule_06_a_goodbye_leads_to_no_question() -> None:
    history, bench = following()
    bench.hear(history.reading(), nonce=bench.ask().nonce)
    history.one("other")
    asked = len(bench.questions)
    goodbye = hello(of_a_new_publisher(history))
    assert goodbye.hello is not None
    last = msgspec.structs.replace(goodbye, hello=msgspec.structs.replace(goodbye.hello, goodbye=True))
    bench.do(bench.tracker.feed(last, bench.now))
    bench.wait(bench.timing.connect_jitter)
    assert bench.questions[asked:] == []


def test_rule_06_a_replica_of_everything_needs_no_question_its_clock_runs() -> None:
    bench = Bench(history := History(), (ALL,)).synced()
    history.one()
    assert hinted(bench, of_a_new_publisher(history)) == []
    assert bench.state(ALL) is State.HOLDING


def test_rule_06_a_lost_head_that_was_told_during_a_full_sync_is_read_after_it() -> None:
    bench = Bench(history := History()).synced()
    bench.tracker.resync(["t"], bench.now)
    bench.wait(bench.timing.sync_jitter)
    answer = history.answer(bench.running.wants)
    lost = history.one()
    question = connected(bench)
    bench.hear(history.reading(), nonce=question.nonce)
    bench.answer(answer)
    bench.wait()
    assert bench.tracker.chain("t").cause == "reconnected"
    bench.wait(bench.timing.sync_jitter + bench.timing.sync_interval)
    assert bench.answer() == [lost]


def test_rule_08_a_new_topic_asks_and_waits_for_an_own_hello_before_its_full_sync() -> None:
    history = History()
    history.some(2)
    bench = Bench(history)
    assert bench.questions[0].topics == ("t",)
    bench.wait(0.5 * CALM.hello_wait)
    assert bench.sync is None
    bench.hear(history.reading())
    bench.wait()
    assert bench.sync is None, "a broadcast proves nothing about the subscription"
    bench.hear(history.reading(), nonce=bench.questions[0].nonce)
    bench.wait()
    assert bench.running.wants == {"t": Want()}


def test_rule_08_the_wait_for_an_own_hello_is_bounded() -> None:
    bench = Bench(History())
    assert bench.tracker.next_time() <= bench.now + CALM.hello_wait
    bench.wait(CALM.hello_wait)
    assert bench.running.wants == {"t": Want()}


def test_rule_08_a_point_at_hand_needs_a_delta_only() -> None:
    history = History()
    links = history.some(4)
    bench = Bench(history, known={"t": links[1].point})
    bench.hear(history.reading(), nonce=bench.questions[-1].nonce)
    bench.wait()
    assert bench.running.wants == {"t": Want(after=links[1].point)}
    assert bench.answer() == links[2:]


@pytest.mark.parametrize("at_hand", [False, True])
def test_rule_08_synced_only_when_the_first_sync_is_done(at_hand: bool) -> None:
    history = History()
    history.some(2)
    bench = Bench(history, known={"t": history.point} if at_hand else None)
    assert not bench.is_synced()
    bench.hear(history.reading(), nonce=bench.questions[-1].nonce)
    assert not bench.is_synced()
    bench.wait()
    assert not bench.is_synced()
    bench.fail()
    assert not bench.is_synced()
    bench.wait(10.0)
    bench.answer()
    assert bench.is_synced()
    bench.tracker.mismatched("t", bench.now)
    assert bench.is_synced(), "it was synced once"


def test_rule_08_topics_added_and_dropped_while_running() -> None:
    history, bench = following()
    history.some(2, "u")
    bench.do(bench.tracker.subscribe(["u", "t"], bench.now))
    assert bench.questions[-1].topics == ("u",)
    assert not bench.is_synced()
    bench.synced()
    assert bench.known("u") == history.head("u")
    bench.tracker.unsubscribe("u")
    bench.tracker.unsubscribe("u")
    assert set(bench.tracker.topics) == {"t"}
    assert bench.feed(history.one("u")) == []
    assert bench.tracker.counters.unsubscribed == 1


def test_rule_08_to_drop_a_topic_looks_at_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 topics dropped one by one while none is due would else be 64,000,000 looks."""
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


def test_rule_08_a_need_ends_with_the_last_topic_that_had_it() -> None:
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


def test_rule_08_a_topic_that_was_dropped_leaves_no_clock() -> None:
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


def test_rule_08_an_own_hello_greets_only_topics_that_it_was_asked_about() -> None:
    history, bench = following()
    history.one("u")
    asked = bench.ask()
    bench.do(bench.tracker.subscribe(["u"], bench.now))
    bench.hear(history.reading(), nonce=asked.nonce)  # the publisher answered before it knew of the subscription to u
    assert bench.state("u") is State.JOINING
    bench.hear(history.reading(), nonce=bench.questions[-1].nonce)
    assert bench.state("u") is State.FULL_DUE


def test_rule_08_a_topic_dropped_and_followed_again_during_its_sync_ignores_the_answer() -> None:
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


def test_rule_10_a_mismatch_has_the_differing_buckets_fetched_then_everything() -> None:
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


def test_rule_10_what_never_fits_is_read_ever_more_rarely_and_nothing_waits_for_it() -> None:
    history, bench = following(topics=("t", "other"))
    bench.tracker.mismatched("t", bench.now)
    began, whole = [], []
    until = bench.now + 600.0
    while bench.now < until:
        bench.wait(max(0.0, bench.tracker.next_time() - bench.now))
        if bench.sync is not None:
            want = bench.sync.wants.get("t")
            bench.answer()
            if want is not None and want.after is None:  # else it is only polled
                began.append(bench.now)
                whole.append(want.buckets is None)
                bench.tracker.mismatched("t", bench.now)
                assert bench.state() is bench.state("other") is State.FOLLOWING or len(began) == 1
    assert whole[:4] == [False, True, False, False], "everything once; then whether the buckets fit by now"
    waits = [after - before for before, after in itertools.pairwise(began)]
    assert waits[:7] == pytest.approx([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, CALM.max_sync_backoff])
    assert waits[6:] == pytest.approx([CALM.max_sync_backoff] * len(waits[6:]))
    assert list(bench.tracker.mismatching) == ["t"]
    link = history.one()
    assert bench.feed(link) == [link]
    bench.tracker.mismatched("t", bench.now)
    assert bench.state() is State.FOLLOWING, "its next reading has its time"


def test_rule_10_a_doubt_ends_with_an_answer_that_fits_and_another_begins_anew() -> None:
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


def test_rule_10_a_topic_in_doubt_may_be_dropped() -> None:
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


def test_rule_10_a_repair_begins_with_everything_that_has_come() -> None:
    history, bench = following()
    bench.tracker.mismatched("t", bench.now)
    links = history.some(3)
    assert bench.feed(*links) == []
    bench.wait(CALM.sync_interval + CALM.sync_jitter)
    assert bench.is_syncing()
    assert bench.applied[-3:] == links, "else the buckets of these differ, and are read too"
    assert bench.known() == links[-1].point
    later = history.one()
    assert bench.feed(later) == [], "while the sync runs known stands still"
    bench.answer()
    assert bench.known() == later.point


def test_rule_10_a_mismatch_during_a_delta_is_not_answered_by_it() -> None:
    history, bench = following()
    history.one()
    bench.hear(history.reading())
    bench.wait(WINDOW)
    bench.tracker.mismatched("t", bench.now)
    bench.answer()
    assert bench.state() is State.FULL_DUE


def test_rule_10_a_replica_of_everything_fetches_differing_buckets_too() -> None:
    _, bench = following(topics=(ALL,))
    bench.tracker.mismatched("some topic", bench.now)
    bench.wait()
    assert bench.running.wants == {ALL: Want(buckets={})}


def test_rule_10_of_a_topic_that_was_dropped_is_ignored() -> None:
    _, bench = following()
    bench.tracker.mismatched("gone", bench.now)
    assert bench.state() is State.FOLLOWING


# -- a full sync that somebody asks for --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t", ALL])
def test_what_is_asked_for_is_read_anew_and_counted_as_asked(name: str) -> None:
    _, bench = following(topics=(name,))
    for times in (1, 2):  # and again, although nothing came in between
        bench.tracker.resync([name], bench.now)
        bench.wait()
        assert bench.running.wants == {name: Want()}
        bench.answer()
        assert bench.state(name) is State.FOLLOWING
        assert bench.tracker.counters.fulls["asked"] == times


def test_what_is_asked_for_while_a_repair_is_due_is_everything() -> None:
    _, bench = following()
    bench.tracker.mismatched("t", bench.now)
    bench.tracker.resync(["t"], bench.now)
    bench.wait()
    assert bench.running.wants == {"t": Want()}


def test_nothing_is_asked_for_while_everything_is_to_be_read_anyway() -> None:
    history = History()
    bench = Bench(history)
    bench.tracker.resync(["t"], bench.now)
    assert bench.state() is State.JOINING
    bench.hear(history.reading(), nonce=bench.questions[-1].nonce)
    bench.tracker.resync(["t"], bench.now)
    assert bench.state() is State.FULL_DUE
    bench.wait()
    bench.tracker.resync(["t"], bench.now)
    bench.answer()
    assert (bench.state(), bench.tracker.syncs.waits) == (State.FOLLOWING, False)


# -- rule 12, and what a shell relies on -------------------------------------------------------------------------


def test_rule_12_the_same_input_gives_the_same_actions() -> None:
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
        return [str(bench.syncs), str(bench.questions), str(bench.applied)]

    assert run() == run()


def test_rule_12_nothing_followed_has_nothing_to_do() -> None:
    tracker = Tracker(CALM, Limits(), random.Random(0), 100.0)
    assert tracker.next_time() == float("inf"), "a shell that sleeps until then must not spin"
    assert tracker.tick(200.0) == []
    _, bench = following()
    bench.tracker.unsubscribe("t")
    assert bench.tracker.next_time() == float("inf")


def test_rule_07_a_tracker_that_follows_nothing_claims_nothing() -> None:
    new = Tracker(CALM, Limits(), random.Random(0), 100.0)
    history, bench = following()
    history.one()
    bench.tracker.unsubscribe("t")
    for tracker in (new, bench.tracker):
        assert not tracker.synced
        assert tracker.staleness(200.0) == float("inf")
        assert tracker.covered() == 0
        assert tracker.covered(["t"]) == 0


def test_covered_of_a_topic_that_is_not_followed_is_nothing() -> None:
    history = History()
    history.some(2)
    bench = Bench(history).synced()
    assert bench.tracker.covered(["t"]) == 2
    assert bench.tracker.covered(["t", "other"]) == 0


def test_rule_12_next_time_is_never_too_late_and_never_spins() -> None:
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


def test_an_envelope_of_several_messages_is_applied_as_one() -> None:
    history, bench = following()
    links = history.some(3)
    effects = bench.tracker.feed(envelope(*links), bench.now)
    assert len(effects) == 1
    bench.do(effects)
    assert bench.applied == links


def test_late_answers_and_failures_are_counted_and_change_nothing() -> None:
    history, bench = following()
    history.one()
    bench.hear(history.reading())
    bench.wait(WINDOW)
    number, reading = bench.running.number, history.answer(bench.running.wants)
    bench.sync = None
    bench.wait(CALM.sync_timeout)
    assert bench.state() is State.DELTA_DUE
    assert bench.tracker.sync_done(number, reading, bench.now) == []
    bench.tracker.sync_failed(number, bench.now)
    assert bench.tracker.counters.late_answers == 2
    assert bench.tracker.counters.syncs_failed == 1


def test_covered_is_the_least_of_what_is_followed() -> None:
    history = History()
    history.some(2, "a")
    history.some(3, "b")
    bench = Bench(history, ("a", "b"))
    assert bench.tracker.covered() == 0
    bench.synced()
    assert bench.tracker.covered() == 5, "the sync proved that a has no more up to the store's position"
    bench.feed(history.one("b"))
    assert bench.tracker.covered(["b"]) == 6
    assert bench.tracker.covered() == 5
    bench.hear(history.reading(), nonce=bench.ask().nonce)
    assert bench.tracker.covered() == 6
    bench.tracker.mismatched("a", bench.now)
    assert bench.tracker.covered() == 0


def test_covered_starts_anew_in_another_history() -> None:
    history = History()
    history.some(9)
    bench = Bench(history).synced()
    bench.history = history.restored(2)
    bench.hear(bench.history.reading(), nonce=bench.ask().nonce)
    bench.wait()
    bench.answer()
    bench.wait()
    bench.answer()
    assert bench.tracker.covered() == 2


def test_covered_goes_back_with_a_store_restored_to_a_point_that_is_known() -> None:
    history = History()
    history.one()
    history.some(9, "other")
    bench = Bench(history).synced()
    assert bench.tracker.covered() == 10
    restored = history.restored(3)
    bench.hear(restored.reading(), nonce=bench.ask().nonce)
    assert bench.state() is State.FOLLOWING, "this topic was not touched by the restore"
    restored.some(2)
    assert bench.tracker.covered() == 3, "its change at position 4 is not here"


def test_the_empty_topic_is_followed_from_its_first_link() -> None:
    history = History()
    bench = Bench(history).synced()
    assert bench.known() == ZERO
    link = history.one()
    assert bench.feed(link) == [link]


def test_rule_04_a_head_that_proves_a_changed_history_proves_no_freshness() -> None:
    history, bench = following()
    lost = history.one()
    bench.feed(lost)
    bench.history = history.restored(lost.prev.position)
    nonce = bench.ask().nonce
    before = bench.staleness()
    bench.hear(bench.history.reading(), nonce=nonce)
    assert bench.state() is State.DELTA_DUE
    assert bench.staleness() == before, "what the replica shows is not what the store has"


def test_rule_01_a_link_that_leads_backwards_is_foreign() -> None:
    # The codec refuses a topic's link like that; the chain of everything runs over the transactions' points.
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
