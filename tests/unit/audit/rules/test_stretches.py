"""The parents of a run: when it listened to each, and when nothing named the one at its address."""

from typing import Any

from pyspark.sql import Row

from pubsub_lib.audit.rules.base_tables import FOREVER
from pubsub_lib.audit.rules.stretches import stretches, unnamed
from pubsub_lib.audit.settings import AuditSettings

SETTINGS = AuditSettings(window=10, grace=2, bound=1, silence=10)


def parents(*services: str) -> list[Row]:
    """The records of a run, numbered from 1; "" is a move."""
    numbered = enumerate(services, 1)
    return [
        Row(number=number, wall=10 * number, service=service, uuid=service and f"u-{service}")
        for number, service in numbered
    ]


def numbers(*services: str) -> list[tuple[Any, ...]]:
    """Of each stretch: the service, the first record, the one that names it, the one that ends it."""
    return [
        (each.service, each.begin["number"], each.named["number"], each.end and each.end["number"])
        for each in stretches(parents(*services))
    ]


def test_a_stretch_begins_with_the_move_before_the_name() -> None:
    assert numbers("", "a") == [("a", 1, 2, None)]
    assert numbers("a", "a", "b") == [("a", 1, 1, 3), ("b", 3, 3, None)]
    assert numbers("", "", "a", "", "a", "b") == [("a", 2, 3, 4), ("a", 4, 5, 6), ("b", 6, 6, None)]
    assert numbers("") == []


def test_a_parent_is_unnamed_from_a_move_to_the_next_record() -> None:
    def ranges(*services: str) -> list[tuple[int, int]]:
        return [(each["begin"], each["end"]) for each in unnamed(parents(*services), SETTINGS)]

    assert ranges("", "a", "a") == [(1, 2)]
    assert ranges("a", "", "", "b", "") == [(2, 3), (3, 4), (5, FOREVER)]
    assert ranges("a", "b") == []
    assert [each["until"] for each in unnamed(parents("a", "", "b"), SETTINGS)] == [20 + SETTINGS.reach]
