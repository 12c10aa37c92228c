"""The versions that changes replaced: known answers."""

import msgspec

from pubsub_lib.journal.previous_versions import with_previous
from pubsub_lib.journal.rows import ChangeRow, Kind, Outcome, Row, Side


def row(
    kind: Kind, outcome: Outcome = "", topic: str = "t", *changes: tuple[str, int, str], side: Side = "replica"
) -> Row:
    found = tuple(ChangeRow("lport", key, version, action, 0, 0) for key, version, action in changes)
    return Row(
        side=side, name="r", host="h", run="ab", number=1, kind=kind, wall=0, mono=0, topic=topic, outcome=outcome,
        changes=found,
    )  # fmt: skip


def applied(*changes: tuple[str, int, str], topic: str = "t") -> Row:
    return row("data", "applied", topic, *changes)


def before(rows: list[Row]) -> list[int | None]:
    return [change.before for each in with_previous(rows) for change in each.changes]


def test_previous_version_is_taken_from_an_earlier_change() -> None:
    rows = [
        applied(("a", 1, "create"), ("b", 2, "create")),
        applied(("a", 3, "set"), topic="u"),
        applied(("b", 4, "set"), ("b", 5, "delete"), ("b", 6, "create")),
        applied(("a", 7, "set")),
    ]
    assert before(rows) == [None, None, None, 2, 4, None, 1]


def test_previous_version_is_unknown_after_a_possible_other_change() -> None:
    between = {
        1: [row("sync_end", "delta"), row("sync_end", "incomplete"), row("mark"), row("sync_end", "full", "u")],
        None: [row("sync_end", "full")],
    }
    for wanted, rows in between.items():
        assert before([applied(("a", 1, "set")), *rows, applied(("a", 2, "set"))]) == [None, wanted]
    for other in (row("sync_end", "full", ""), row("sync_end", "failed"), row("drop")):
        assert before([applied(("a", 1, "set")), other, applied(("a", 2, "set"))]) == [None, None]


def part(outcome: Outcome, number: int, *changes: tuple[str, int, str], position: int = 9, parts: int = 2) -> Row:
    found = row("data", outcome, "t", *changes)
    return msgspec.structs.replace(found, position=position, part=number, parts=parts)


def test_large_link_is_applied_with_its_last_part() -> None:
    begun = [applied(("k", 1, "set"), ("m", 2, "set"), ("n", 3, "set"))]
    in_order = [part("part", 1, ("k", 10, "set"), ("m", 10, "delete")), part("applied", 2, ("k", 11, "set"))]
    turned = [part("part", 2, ("k", 11, "set")), part("applied", 1, ("k", 10, "set"), ("m", 10, "delete"))]
    after = [applied(("k", 12, "set"), ("m", 12, "create"), ("n", 12, "set"))]
    assert before([*begun, *in_order, *after])[3:] == [None, None, 10, 11, None, 3]
    assert before([*begun, *turned, *after])[3:] == [None, 1, 2, 11, None, 3]
    read = [row("sync_end", "full")]  # replaces all objects; the sync may not contain the link
    assert before([*begun, turned[0], *read, *turned[1:], *after])[3:] == [None, None, None, 11, None, None]


def test_incomplete_large_link_makes_the_topic_unknown() -> None:
    begun, end = applied(("k", 1, "set"), ("m", 2, "set")), applied(("k", 12, "set"), ("m", 12, "set"))
    other = part("part", 1, ("k", 5, "set"), position=8)  # never becomes complete
    assert before([begun, other, part("applied", 2, ("m", 10, "set")), end])[2:] == [None, None, None, 10]
    whole = part("applied", 1, ("k", 5, "set"), ("m", 6, "set"), position=8, parts=1)  # by a delta
    assert before([begun, other, whole, end])[2:] == [None, 1, 2, 5, 6]


def test_previous_version_is_set_only_for_applied_changes() -> None:
    sent = row("data", "sent", "t", ("a", 2, "set"), side="service")
    waits = row("data", "waiting", "t", ("a", 3, "set"))
    assert before([applied(("a", 1, "set")), sent, waits, applied(("a", 4, "set"))]) == [None, None, None, 1]
