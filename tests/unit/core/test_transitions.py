"""The table of states: complete, without unused entries, and consistent with its groups."""

import pytest

from pubsub_lib.core import chain as chain_module
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Want
from pubsub_lib.core.transitions import DONE, DUE, FROZEN, SYNCING, TRANSITIONS, State, Trigger, after
from tests.scale import QUICK
from tests.unit.core.builders import Bench, History
from tests.unit.core.world import walk

Entry = tuple[State, Trigger]
TABLE: set[Entry] = {(state, trigger) for state, row in TRANSITIONS.items() for trigger in row}


def test_every_state_has_a_row_and_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {State.JOINING}
    while True:
        more = {target for state in reached for target in TRANSITIONS[state].values()}
        if more <= reached:
            break
        reached |= more
    assert reached == set(State)
    for state in State:
        assert set(TRANSITIONS[state].values()) - {state}, f"{state} is a trap"


def test_every_trigger_is_used_in_the_table() -> None:
    assert {trigger for row in TRANSITIONS.values() for trigger in row} == set(Trigger)


def test_impossible_trigger_raises_key_error() -> None:
    with pytest.raises(KeyError):
        after(State.FOLLOWING, Trigger.REPLACED)


def test_groups_of_states_agree_with_the_table() -> None:
    assert {state for state in State if Trigger.BEGUN in TRANSITIONS[state]} == DUE
    assert {state for state in State if Trigger.FAILED in TRANSITIONS[state]} == SYNCING
    assert {state for state in State if state.name.startswith("FULL")} == FROZEN
    assert {trigger for state in SYNCING for trigger in TRANSITIONS[state]} >= DONE
    for state in SYNCING:
        assert TRANSITIONS[state][Trigger.FAILED] in DUE
    for state in DUE:
        assert TRANSITIONS[state][Trigger.BEGUN] in SYNCING


def test_rule_09_a_need_that_arises_during_a_sync_is_remembered() -> None:
    for state in (State.DELTA_AGAIN, State.FULL_AGAIN):
        for trigger in DONE & TRANSITIONS[state].keys():
            assert after(state, trigger) in DUE
        ends = DONE | {Trigger.FAILED, Trigger.MISMATCHED, Trigger.INCOMPLETE}
        for trigger in TRANSITIONS[state].keys() - ends:
            assert after(state, trigger) in DUE | {state}


@pytest.mark.parametrize("again", [False, True])
def test_delta_with_known_of_another_history_is_broken(again: bool) -> None:
    history = History()
    bench = Bench(history).synced()
    other, lost = history.restored(0), history.some(3)
    bench.feed(lost[1])
    bench.wait(1.0)
    other.some(5)
    reading = other.answer(bench.running.wants)
    bench.feed(lost[0])
    if again:
        bench.receive(other.restored(2, seed=9).reading())
    assert bench.state() is (State.DELTA_AGAIN if again else State.DELTA)
    assert bench.answer(reading) == []
    assert bench.state() is State.DELTA_DUE
    assert bench.known() not in (ZERO, other.point)


def test_delta_behind_known_keeps_a_need_that_arose_meanwhile() -> None:
    history = History()
    bench = Bench(history, limits=Limits(max_waiting_links=1)).synced()
    links = history.some(7)
    bench.feed(links[1])
    bench.wait(1.0)
    reading = history.restored(links[1].point.position).answer(bench.running.wants)
    bench.feed(links[0], links[2])
    bench.feed(links[4], links[6])
    assert bench.state() is State.DELTA_AGAIN
    assert bench.answer(reading) == []
    assert bench.state() is State.DELTA_DUE
    bench.wait()
    assert bench.answer() == links[3:]


@pytest.mark.parametrize("asked", [False, True])
def test_mismatch_during_a_delta_leads_to_a_full_sync(asked: bool) -> None:
    history = History()
    bench = Bench(history, limits=Limits(max_waiting_links=1)).synced()
    links = history.some(5)
    bench.feed(links[1])
    bench.wait(1.0)
    bench.feed(links[2], links[4])
    assert bench.state() is State.DELTA_AGAIN
    if asked:
        bench.tracker.resync(["t"], bench.now)
    else:
        bench.tracker.mismatched("t", bench.now)
    assert bench.state() is State.FULL_DUE
    assert bench.answer() == []  # the delta's answer is late
    bench.wait()
    assert bench.running.wants == {"t": Want() if asked else Want(buckets={})}
    bench.answer()
    assert bench.known() == history.point


def test_resumed_point_of_another_history_is_detected() -> None:
    history = History()
    history.some(2)
    other = history.restored(1)
    other.one()
    bench = Bench(other, known={"t": history.point})
    bench.receive(other.reading())
    assert bench.state() is State.JOINING
    bench.synced()
    assert bench.known() == other.point


REACHING = (278, 338, 215, 10, 150, 408, 21, 191, 292, 300, 508, 532)
"""Seeds that together reached all entries when they were chosen. After a change others may be needed, and are tried."""


def test_every_entry_of_the_table_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: set[Entry] = set()

    def note(state: State, trigger: Trigger) -> State:
        happened.add((state, trigger))
        return after(state, trigger)

    monkeypatch.setattr(chain_module, "after", note)
    test_delta_with_known_of_another_history_is_broken(again=False)
    test_delta_with_known_of_another_history_is_broken(again=True)
    test_delta_behind_known_keeps_a_need_that_arose_meanwhile()
    test_resumed_point_of_another_history_is_detected()
    test_mismatch_during_a_delta_leads_to_a_full_sync(asked=False)
    test_mismatch_during_a_delta_leads_to_a_full_sync(asked=True)
    for seed in (*(REACHING if QUICK else ()), *range(600)):
        walk(seed, 400)
        if happened == TABLE:
            break
    assert TABLE - happened == set(), "unused entries: remove them from the table"
