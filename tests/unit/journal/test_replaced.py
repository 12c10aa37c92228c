"""Which version was replaced: known answers."""

from pubsub_lib.journal.replaced import with_before
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
    return [change.before for each in with_before(rows) for change in each.changes]


def test_an_earlier_change_of_the_object_in_its_topic_tells() -> None:
    rows = [
        applied(("a", 1, "create"), ("b", 2, "create")),
        applied(("a", 3, "set"), topic="u"),
        applied(("b", 4, "set"), ("b", 5, "delete"), ("b", 6, "create")),
        applied(("a", 7, "set")),
    ]
    assert before(rows) == [None, None, None, 2, 4, None, 1]


def test_what_may_have_changed_it_meanwhile_makes_it_unknown() -> None:
    between = {
        1: [row("sync_end", "delta"), row("sync_end", "incomplete"), row("mark"), row("sync_end", "full", "u")],
        None: [row("sync_end", "full")],
    }
    for wanted, rows in between.items():
        assert before([applied(("a", 1, "set")), *rows, applied(("a", 2, "set"))]) == [None, wanted]
    for other in (row("sync_end", "full", ""), row("sync_end", "failed"), row("drop")):
        assert before([applied(("a", 1, "set")), other, applied(("a", 2, "set"))]) == [None, None]


def test_only_what_a_replica_applied_replaced_something() -> None:
    sent = row("data", "sent", "t", ("a", 2, "set"), side="service")
    waits = row("data", "waiting", "t", ("a", 3, "set"))
    assert before([applied(("a", 1, "set")), sent, waits, applied(("a", 4, "set"))]) == [None, None, None, 1]
