"""Canonical JSON (rule S6): one byte form for equal values; values that JSON does not have are refused."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import values
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import InvalidValueError

LIMITS = Limits(max_value_bytes=10_000, max_value_depth=8)

text = st.text(st.characters(exclude_categories=["Cs"]))
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
plain = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)


@given(plain)
def test_encoded_value_is_decoded(value: Any) -> None:
    data = values.encode(value, Limits())
    assert values.decode(data) == value
    assert json.loads(data) == value
    assert values.encode(values.decode(data), Limits()) == data


@given(st.dictionaries(text, leaves, min_size=2, max_size=6))
def test_order_of_members_does_not_change_the_bytes(value: dict[str, Any]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert values.encode(value, Limits()) == values.encode(backwards, Limits())


def test_canonical_form() -> None:
    value = {"b": [1, 2.0, True, None], "a": 'ü"\\\n\x00', "B": (1,)}
    assert values.encode(value, LIMITS) == '{"B":[1],"a":"ü\\"\\\\\\n\\u0000","b":[1,2.0,true,null]}'.encode()


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (math.nan, "nan"),
        ([math.inf], "inf"),
        ({"x": -math.inf}, "inf"),
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (b"x", "bytes"),
        ({1, 2}, "set"),
        (object(), "object"),
        ({1: 2}, "member name 1"),
        ({None: 2}, "member name None"),
        ("\ud800", "Unicode"),
        ({"\ud800": 1}, "Unicode"),
        (1j, "complex"),
        ("x" * 10_000, "bytes"),
        ([0] * 10_001, "bytes"),
        ({"x": 2**64}, "64 bits"),
        ({"x": [1, -(2**63) - 1]}, "64 bits"),
        ({"x": ["y", b"x"]}, "bytes"),
        ({"x": [math.nan]}, "nan"),
        ({"x": [0] * 10_001}, "bytes of JSON; make it smaller"),
    ],
)
def test_value_that_json_does_not_have_is_refused(value: object, word: str) -> None:
    with pytest.raises(InvalidValueError, match=word):
        values.encode(value, LIMITS)


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(8):
        value = [value]
    assert values.encode(value, LIMITS) == b"[[[[[[[[1]]]]]]]]"
    with pytest.raises(InvalidValueError, match="8 levels"):
        values.encode({"x": value}, LIMITS)
    value.append(value)
    with pytest.raises(InvalidValueError, match="8 levels"):
        values.encode(value, LIMITS)


numbers = st.integers(-(2**63) - 2, -(2**63) + 2) | st.integers(2**64 - 2, 2**64 + 2)
members = text | st.booleans() | numbers | st.floats()


@given(st.dictionaries(text, members | st.lists(members, max_size=3), max_size=3))
def test_plain_value_needs_no_other_check(value: dict[str, Any]) -> None:
    if values._is_plain(value, LIMITS):
        values._check(value, LIMITS)


@pytest.mark.parametrize("value", [{}, {"x": 1}, {"x": [1]}, {"x": ["y"], "z": True}])
def test_depth_of_a_plain_value_is_bounded(value: Any) -> None:
    depth = 2 if any(isinstance(each, list) for each in value.values()) else 1
    assert values.encode(value, Limits(max_value_depth=depth))
    with pytest.raises(InvalidValueError, match=f"deeper than {depth - 1} levels"):
        values.encode(value, Limits(max_value_depth=depth - 1))


def test_list_that_contains_itself_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(InvalidValueError, match="8 levels"):
        values.encode({"x": cycle}, LIMITS)


def test_lists_shared_by_many_members_are_bounded() -> None:
    shared = [0] * 1000
    with pytest.raises(InvalidValueError, match="make it smaller"):
        values.encode({str(number): shared for number in range(11)}, LIMITS)


def test_shared_graph_is_bounded() -> None:
    value: Any = "x"
    for _ in range(60):
        value = [value, value]
    with pytest.raises(InvalidValueError, match="bytes"):
        values.encode(value, Limits())


@pytest.mark.parametrize("data", [b"", b"{", b"nope", b"\xff", b'"caf\xe9"', b'{"\xe9":1}', b"1 2", b"[" * 100_000])
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidValueError, match="are not valid JSON"):
        values.decode(data)
