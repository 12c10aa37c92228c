"""The rows of the tree: hops by counts, by records of parents and by hello replies."""

from typing import Any

import pytest
from pyspark.sql import Row

from pubsub_lib.audit.report.tree import COUNTS, Seen, rows

RUNS = (("service", "s", False), ("relay", "r1", False), ("replica", "r1", False), ("replica", "a", False))


def counted(service: str, name: str, **counts: int) -> Row:
    return Row(domain="d", service=service, name=name, **{**dict.fromkeys(COUNTS, 0), **counts})


def runs(*more: tuple[str, str, bool]) -> list[Row]:
    return [Row(domain="d", side=side, name=name, polls=polls) for side, name, polls in (*RUNS, *more)]


def parent(number: int, service: str = "", run: str = "x", name: str = "a") -> Row:
    """At the time ``number``. Without a service it is a move."""
    uuid = f"u-{service}" if service else ""
    return Row(domain="d", run=run, name=name, number=number, wall=number, service=service, uuid=uuid)


def answered(service: str, name: str) -> Row:
    return Row(domain="d", service=service, name=name)


def hops(seen: Seen) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["service"], row["name"]): row for row in rows(seen)}


def listening(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("arrivals", "came", "left", "current"))


def test_roles_and_counts_of_hops() -> None:
    more = ("replica", "p", True), ("writer", "w", False), ("replica", "b", False)
    found = hops(
        Seen(
            [counted("s", "r1", expected=3, delivered=3), counted("r1", "a", expected=3, late=1), counted("s", "p"),
             counted("w", "b"), counted("", "b")],
            runs(*more), [], [],
        )
    )  # fmt: skip
    assert {hop: (row["service_role"], row["name_role"]) for hop, row in found.items()} == {
        ("s", "r1"): ("service", "relay"),
        ("r1", "a"): ("relay", "replica"),
        ("s", "p"): ("service", "polling"),
        ("w", "b"): ("writer", "replica"),
        ("", "b"): ("", "replica"),
    }
    assert (found["s", "r1"]["expected"], found["r1", "a"]["late"], found["s", "p"]["expected"]) == (3, 1, 0)
    assert listening(found["s", "r1"]) == (None, None, None, None), "it has no parents"


def test_moves_between_parents() -> None:
    records = [
        parent(1), parent(2, "r1"), parent(5), parent(6, "r2"), parent(7, "r2"), parent(9), parent(11, "r1")
    ]  # fmt: skip
    found = hops(Seen([], runs(), records[::-1], []))
    assert {hop: listening(row) for hop, row in found.items()} == {
        ("r1", "a"): (2, 11, None, True),
        ("r2", "a"): (1, 6, 9, False),
    }


@pytest.mark.parametrize(
    ("records", "current"),
    [
        ([parent(1), parent(2, "r1")], {"r1"}),
        ([parent(1), parent(2, "r1"), parent(3)], set()),
        ([parent(2, "r1"), parent(12, "r2", run="y")], {"r2"}),
        ([parent(2, "r1"), parent(12, "r2", run="y"), parent(13, run="y")], set()),
        ([parent(12, "r1"), parent(2, "r2", run="y")], {"r1"}),
    ],
    ids=["stays", "moved to one that never answered", "later run", "later run left", "earlier run"],
)
def test_parent_at_the_end(records: list[Row], current: set[str]) -> None:
    assert {row["service"] for row in rows(Seen([], runs(), records, [])) if row["current"]} == current


def test_hop_without_messages_is_known_by_hello_replies() -> None:
    replies = [answered("s", "r1"), answered("r1", "a"), answered("s", "a"), answered("db-polling", "p")]
    found = hops(Seen([], runs(("replica", "p", True)), [parent(2, "r1")], replies))
    assert set(found) == {("s", "r1"), ("r1", "a")}, "replicas with parents have no others"
    assert found["s", "r1"]["expected"] == 0


def test_hops_to_relays_come_first_then_those_with_faults() -> None:
    some = [
        counted("s", "c"), counted("s", "b", repaired=4), counted("s", "a", late=1), counted("s", "r1"),
        counted("r1", "e", unknown=2), counted("r1", "d", repaired=9),
    ]  # fmt: skip
    assert [row["name"] for row in rows(Seen(some, runs(), [], []))] == ["r1", "e", "a", "d", "b", "c"]
