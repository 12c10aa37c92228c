"""The trail of an anomaly by its definition (audit-verdicts.md, "Trails"), without code of the product."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pubsub_lib.journal.rows import ChangeRow, Row
from tests.unit.audit.oracle import Oracle

RECORDS, OBJECTS = 24, 3
HOPS = ["committed", "handed", "taken", "sent", "applied"]


def trail(one: Oracle, anomaly: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each record: participant, run and number, the time, the objects and the number of more."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in sorted(one.rows, key=lambda row: (wall(row), row.number, row.run)):
        if concerns(row, anomaly):
            groups[row.side, row.kind, row.outcome].append(row)
    firsts = [rows[0] for rows in groups.values()]
    others = [row for rows in groups.values() for row in rows[1:]]
    chosen = [*sorted(firsts, key=place), *sorted(others, key=place)][:RECORDS]
    return [shown(row, anomaly) for row in sorted(chosen, key=place)]


def wall(row: Row) -> int:
    return row.written if row.outcome == "committed" and row.written > 0 else row.wall


def place(row: Row) -> tuple[bool, int, int, int, str]:
    if row.side == "replica":
        return True, 0, row.wall, row.number, row.run
    hop = len(HOPS) if row.kind == "object" else HOPS.index(row.outcome) if row.outcome in HOPS else 0
    return False, hop, wall(row), row.number, row.run


def concerns(row: Row, anomaly: Mapping[str, Any]) -> bool:
    if row.side == "replica" and anomaly.get("name") not in (None, row.name):
        return False
    if anomaly.get("key") is not None:
        return row.kind in ("data", "object") and row.topic == anomaly["topic"] and bool(changes(row, anomaly))
    if row.kind != "data":
        return False
    if anomaly.get("position"):
        names = ("topic", "position", "nonce")
    else:
        names = ("uuid", "topic", "sequence")
        if not row.uuid:
            return False
    return all(getattr(row, name) == anomaly.get(name) for name in names)


def changes(row: Row, anomaly: Mapping[str, Any]) -> list[ChangeRow]:
    key = anomaly.get("key")
    return [each for each in row.changes if key is None or (each.table, each.key) == (anomaly["table"], key)]


def shown(row: Row, anomaly: Mapping[str, Any]) -> dict[str, Any]:
    every = changes(row, anomaly)
    objects = [
        {name: value for name in ("table", "key", "action", "version", "before")
         if (value := getattr(each, name)) is not None}
        for each in every[:OBJECTS]
    ]  # fmt: skip
    return {
        "side": row.side, "name": row.name, "run": row.run, "number": row.number, "wall": wall(row),
        "objects": objects, "more": len(every) - len(objects),
    }  # fmt: skip
