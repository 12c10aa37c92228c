"""Mapping between rows and protocol objects: both directions are inverse."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.model import Change, Head, Link, Point
from pubsub_lib.errors import SchemaError, StoreError
from pubsub_lib.store import rows, schema

points = st.builds(Point, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
keys = st.text(min_size=1)
changes = st.one_of(
    st.builds(
        Change,
        st.just("t"),
        st.text(min_size=1),
        st.sampled_from(["create", "set"]),
        st.integers(0, 2**63 - 1),
        st.binary(),
    ),
    st.builds(Change, st.just("t"), st.text(min_size=1), st.just("delete"), st.integers(0, 2**63 - 1), st.none()),
)
links = st.builds(
    Link,
    topic=st.text(min_size=1),
    prev=points,
    point=points,
    changes=st.lists(changes, max_size=3),
    count=st.integers(0, 2**40),
    digest=st.integers(0, 2**64 - 1),
    tx_prev=points,
    tx_links=st.integers(1, 9),
    origin=st.text(),
    written_at=st.floats(0, 1e10),
)


def as_row(values: dict[str, Any]) -> list[Any]:
    """A row of the changelog, as a database returns it."""
    assert values.keys() == set(schema.links.columns.keys())
    return [values[name] for name in schema.links.columns.keys()]  # noqa: SIM118 - a collection of columns, by name


@given(links)
def test_link_round_trips_through_its_row(link: Link) -> None:
    row = rows.link_row(link, 7)
    assert rows.link(as_row(row)) == link
    assert all(isinstance(value, int | str | float | bytes) for value in row.values())
    assert max(value for value in row.values() if isinstance(value, int)) < 2**63
    head = rows.head(list(rows.head_row(link).values()))
    assert (head.point, head.count, head.digest) == (link.point, link.count, link.digest)


def test_a_damaged_link_is_named() -> None:
    link = Link("x", Point(0, 0), Point(5, 1), [], 0, 0, Point(0, 0), 1)
    with pytest.raises(StoreError, match="'x' at position 5 is damaged"):
        rows.link(as_row({**rows.link_row(link, 7), "changes": b"\xc1"}))


@pytest.mark.parametrize("value", [b"5", "5", 1.5, None])
@pytest.mark.parametrize("column", ["position", "nonce", "count", "digest_lo", "prev_position", "tx_links"])
def test_a_link_with_no_number_is_named(column: str, value: object) -> None:
    row = rows.link_row(Link("x", Point(0, 0), Point(5, 1), [], 0, 0, Point(0, 0), 1), 7)
    with pytest.raises(StoreError, match=r"the link of topic 'x' at position .* is damaged"):
        rows.link(as_row({**row, column: value}))


@pytest.mark.parametrize("value", [b"5", "5", 1.5, None])
@pytest.mark.parametrize("column", ["position", "nonce", "count", "digest_lo", "digest_hi"])
def test_a_head_with_no_number_is_named(column: str, value: object) -> None:
    row = rows.topic_row("x", Head(Point(5, 1), 2, 3))
    with pytest.raises(StoreError, match=r"the row of the topic 'x' in pubsub_topics is damaged: .* a number"):
        rows.head(list({**row, column: value}.values()))


@pytest.mark.parametrize("text", [b"ab" * 16, None, 7, "", "ab", "x" * 32])
def test_a_lost_store_id_is_named(text: Any) -> None:
    with pytest.raises(SchemaError, match="holds no store id but"):
        rows.store_id(text)


def test_sums_of_halves_are_a_digest_and_an_infinite_one_is_wrong() -> None:
    assert rows.sums(2**40, 3) == rows.join(2**40, 3)
    assert rows.sums(math.inf, 3) != rows.join(1, 3)


def test_chunks_have_at_most_the_given_size() -> None:
    assert [list(each) for each in rows.chunks(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(rows.chunks([])) == []
