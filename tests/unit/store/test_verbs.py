"""Folding verbs (rule S7), against a model that runs them one by one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import digest, values
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import DEFAULT_TOPIC
from pubsub_lib.errors import ConditionFailed, InvalidValueError, NotFound, VersionMismatch
from pubsub_lib.store.verbs import Effect, Operation, Stored, check_size, fold

State = dict[str, tuple[str, dict[str, Any]]]


def encode(_table: str, value: object) -> bytes:
    return values.encode(value, Limits())


small = st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), max_size=2)
operations = st.builds(
    lambda verb, key, value, topic, missing_ok: Operation(
        verb,
        "t",
        key,
        None if verb == "delete" else encode("t", value),
        topic if verb != "delete" else None,
        None,
        missing_ok,
    ),
    st.sampled_from(["create", "update", "set", "delete"]),
    st.sampled_from("abc"),
    small,
    st.none() | st.sampled_from(["one", "two"]),
    st.booleans(),
)
begin = st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from(["one", "two", DEFAULT_TOPIC]), small))


def run_one_by_one(state: State, steps: list[Operation]) -> State | None:
    """The state after all verbs; None when a condition is violated."""
    state = dict(state)
    for step in steps:
        there = state.get(step.key)
        if step.verb == "delete":
            if there is None and not step.missing_ok:
                return None
            state.pop(step.key, None)
            continue
        assert step.value is not None
        value = values.decode(step.value)
        if (step.verb == "create" and there) or (step.verb == "update" and not there):
            return None
        if step.verb == "update" and there:
            value = there[1] | value
        state[step.key] = (step.topic or (there[0] if there else DEFAULT_TOPIC), value)
    return state


def sound(key: str, topic: str, value: bytes) -> Stored:
    return Stored("t", key, topic, 5, value, digest.fingerprint("t", key, 5, value))


@given(begin, st.lists(operations, max_size=8))
def test_fold_equals_running_the_verbs_one_by_one(state: State, steps: list[Operation]) -> None:
    stored = {("t", key): sound(key, topic, encode("t", value)) for key, (topic, value) in state.items()}
    expected = run_one_by_one(state, steps)
    try:
        effects = fold(steps, stored, encode)
    except ConditionFailed:
        assert expected is None
        return
    assert expected is not None
    after = dict(state)
    for effect in effects:
        assert effect.before == stored.get(("t", effect.key))
        if effect.value is None:
            del after[effect.key]
        else:
            after[effect.key] = (effect.topic, values.decode(effect.value))
    assert after == expected
    # One effect per key, and no effect without a change.
    assert len({effect.key for effect in effects}) == len(effects)
    for effect in effects:
        assert expected.get(effect.key) != state.get(effect.key)


def test_fold_compares_version_with_the_one_before_the_transaction() -> None:
    stored = {("t", "a"): Stored("t", "a", "one", 5, b"1")}
    steps = [Operation("set", "t", "a", b"2", None, 5), Operation("set", "t", "a", b"3", None, 5)]
    assert fold(steps, stored, encode)[0].value == b"3"
    with pytest.raises(VersionMismatch):
        fold([Operation("set", "t", "a", b"2", None, 4)], stored, encode)
    with pytest.raises(NotFound):
        fold([Operation("update", "t", "b", b"{}", None, 4)], stored, encode)
    assert fold([Operation("delete", "t", "b", None, None, 4, True)], stored, encode) == []


def test_check_size_rejects_large_transactions() -> None:
    moved = Effect("t", "k", Stored("t", "k", "one", 5, b"1"), "two", b"12345")
    assert (moved.moves, moved.changes) == (True, 2)
    check_size([moved], Limits(max_transaction_changes=2), 6)
    with pytest.raises(InvalidValueError, match="2 changes"):
        check_size([moved], Limits(max_transaction_changes=1), 6)
    with pytest.raises(InvalidValueError, match="6 bytes"):
        check_size([moved], Limits(), 5)
