"""Conditions on records."""

import pytest

from pubsub_lib.audit.show.selection import Selection
from pubsub_lib.journal.rows import ChangeRow, Kind, Row

P1, P2, R1 = (
    ChangeRow(table, key, 3, "set", 0, 0) for table, key in (("lport", "p1"), ("lport", "p2"), ("lrouter", "p1"))
)


def row(*changes: ChangeRow, kind: Kind = "data", wall: int = 50, topic: str = "t1") -> Row:
    return Row(side="replica", name="r", host="h", run="ab", number=1, kind=kind, wall=wall, mono=0, topic=topic,
               changes=changes)  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (Selection(), True),
        (Selection(topic="t1"), True),
        (Selection(topic="t2"), False),
        (Selection(topic=""), False),
        (Selection(kinds=frozenset({"mark", "data"})), True),
        (Selection(kinds=frozenset({"mark"})), False),
        (Selection(since=50, until=51), True),
        (Selection(since=51), False),
        (Selection(until=50), False),
        (Selection(table="lport"), True),
        (Selection(key="p2"), True),
        (Selection(table="lport", key="p2"), True),
        (Selection(table="lrouter", key="p2"), False),  # not of one object
        (Selection(table="lrouter", key="p1"), True),
        (Selection(topic="t2", key="p2"), False),
    ],
)
def test_record_is_selected_when_it_meets_all_conditions(selection: Selection, selected: bool) -> None:
    assert selection.has(row(P1, P2, R1)) == selected


def test_record_without_objects_is_not_selected_by_an_object() -> None:
    assert Selection().has(row(kind="mark"))
    assert not Selection(key="p1").has(row(kind="mark"))


def test_selected_object_comes_first() -> None:
    assert Selection().changes(row(P1, P2, R1)) == [P1, P2, R1]
    assert Selection(key="p2").changes(row(P1, P2, R1)) == [P2, P1, R1]
    assert Selection(table="lrouter").changes(row(P1, P2, R1)) == [R1, P1, P2]
