"""Secondary indexes: paths, functions, several values, and functions that raise."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.events import decoder_of, plain
from pubsub_lib.core.index import MAX_DESCRIBED, MAX_TEXT, Index
from pubsub_lib.errors import UsageError


class Binding(msgspec.Struct):
    chassis: str


class Port(msgspec.Struct):
    switch: str
    binding: Binding | None = None


def test_field_path_goes_through_objects_and_ends_at_missing_fields() -> None:
    index = Index("i", "port", "binding.chassis", plain)
    for key, value in {
        "p1": b'{"binding":{"chassis":"h1"}}', "p2": b'{"binding":{"chassis":"h1"}}', "p3": b'{"binding":null}',
        "p4": b"{}", "p5": b'{"binding":"text"}', "p6": b"[1]", "p7": b'{"binding":{"chassis":0}}',
    }.items():  # fmt: skip
        index.put(key, value)
    assert index.keys("h1") == ["p1", "p2"]
    assert index.keys(0) == ["p7"]
    assert index.keys(None) == []
    assert index.failing == {}


def test_field_path_goes_through_typed_values() -> None:
    index = Index("i", "port", "binding.chassis", decoder_of(Port))
    index.put("p1", b'{"switch":"s","binding":{"chassis":"h1"}}')
    index.put("p2", b'{"switch":"s"}')
    assert index.keys("h1") == ["p1"]
    index.put("bad", b'{"switch":1}')
    assert list(index.failing) == ["bad"]
    assert "'bad'" in index.failing["bad"]


def test_list_gives_several_values_and_all_are_removed_together() -> None:
    index = Index("i", "port", "tags", plain)
    index.put("p1", b'{"tags":["a","b","a"]}')
    index.put("p2", b'{"tags":["b"]}')
    assert (index.keys("a"), index.keys("b")) == (["p1"], ["p1", "p2"])
    index.put("p1", b'{"tags":"c"}')
    assert (index.keys("a"), index.keys("b"), index.keys("c")) == ([], ["p2"], ["p1"])
    index.put("p1", None)
    index.put("p1", None)
    assert index.keys("c") == []


def test_functions_may_return_tuples_sets_generators_or_none() -> None:
    index = Index("i", "t", lambda value: (value["a"], value["b"]), plain)
    index.put("k", b'{"a":1,"b":2}')
    assert index.keys((1, 2)) == ["k"]
    index = Index("i", "t", lambda value: (item for item in value), plain)
    index.put("k", b"[1,2]")
    assert index.keys(2) == ["k"]
    index = Index("i", "t", lambda value: None, plain)
    index.put("k", b"1")
    assert index.keys(None) == []


def test_raising_function_leaves_out_that_object_only() -> None:
    index = Index("i", "t", lambda value: 10 // value, plain)
    index.put("zero", b"0")
    index.put("one", b"1")
    assert index.keys(10) == ["one"]
    assert index.failures == 1
    assert list(index.failing) == ["zero"]
    assert "ZeroDivisionError" in index.failing["zero"]
    index.put("zero", b"2")
    assert (index.failing, index.keys(5)) == ({}, ["zero"])
    index.put("one", b"0")  # its former values must be removed
    assert index.keys(10) == []
    unhashable = Index("i", "t", lambda value: {"a": value}, plain)
    unhashable.put("k", b"1")
    assert list(unhashable.failing) == ["k"]


class Unprintable(BaseException):
    def __str__(self) -> str:
        raise SystemExit("no text")


@pytest.mark.parametrize("error", [SystemExit(3), Unprintable()])
def test_exception_of_any_kind_leaves_out_that_object_only(error: BaseException) -> None:
    def broken(value: object) -> object:
        if value == 0:
            raise error
        return value

    index = Index("i", "t", broken, plain)
    for key in ("0", "1"):
        index.put(key, key.encode())
    assert (index.keys(0), index.keys(1), index.failures) == ([], ["1"], 1)
    assert index.failing["0"].startswith(type(error).__name__)


def test_term_that_cannot_be_compared_leaves_out_that_object_only() -> None:
    class Term:
        def __init__(self, value: int) -> None:
            self.value = value

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return self.value == other.value  # type: ignore[attr-defined,no-any-return]

    index = Index("i", "t", lambda value: Term(value) if value else 1, plain)
    for key in ("0", "1", "2"):
        index.put(key, key.encode())
    assert (index.keys(1), list(index.failing)) == (["0"], ["1", "2"])
    index.put("1", b"0")
    assert (index.keys(1), list(index.failing)) == (["0", "1"], ["2"])


def test_invalid_paths_and_lookups_raise_one_sentence() -> None:
    for path in ("", "a..b", ".a", "a."):
        with pytest.raises(UsageError, match="empty part"):
            Index("i", "t", path, plain)
    with pytest.raises(UsageError, match="cannot look up a list"):
        Index("i", "t", "a", plain).keys([1])


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.lists(st.integers(0, 3), max_size=3))))
def test_an_index_equals_a_scan(steps: list[tuple[str, list[int] | None]]) -> None:
    index, model = Index("i", "t", lambda value: value, plain), dict[str, list[int]]()
    for key, terms in steps:
        index.put(key, None if terms is None else msgspec.json.encode(terms))
        model.pop(key, None)
        if terms is not None:
            model[key] = terms
        for term in range(4):
            assert sorted(index.keys(term)) == sorted(k for k, some in model.items() if term in some)


def test_status_counts_all_left_out_objects_and_describes_some() -> None:
    index = Index("i", "t", lambda value: 10 // value, plain)
    for number in range(MAX_DESCRIBED + 10):
        index.put(f"k{number}", b"0")
    status = index.status(2)
    assert (status.table, status.left_out, status.failures) == ("t", MAX_DESCRIBED + 10, MAX_DESCRIBED + 10)
    assert list(status.examples) == ["k0", "k1"]
    assert all(text.startswith("ZeroDivisionError") for text in status.examples.values())
    for number in range(MAX_DESCRIBED):
        index.put(f"k{number}", None)
    status = index.status(2)
    assert (status.left_out, status.examples) == (10, {f"k{MAX_DESCRIBED}": "", f"k{MAX_DESCRIBED + 1}": ""})


def test_kept_error_is_bounded_in_length() -> None:
    def broken(value: object) -> object:
        raise RuntimeError("x" * 10_000)

    index = Index("i", "t", broken, plain)
    index.put("k", b"0")
    assert len(index.failing["k"]) == MAX_TEXT
