"""From the effects of a transaction to its links and rows: pure functions, which tests check without a database."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pubsub_lib.core import digest
from pubsub_lib.core.model import EMPTY, Change, Head, Link, Point
from pubsub_lib.store.verbs import Effect, Stored


class Commit(msgspec.Struct, frozen=True):
    """A transaction with at least one change: its point (whose nonce identifies it) and its links, one per topic."""

    point: Point
    nonce: int
    links: Sequence[Link]


class Rows(msgspec.Struct):
    """Writes to the objects' table: new rows, changed rows, and the identities of removed rows."""

    created: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    removed: list[tuple[str, str]]

    def add(self, other: "Rows") -> None:
        """Add the rows of another transaction with other objects."""
        self.created += other.created
        self.changed += other.changed
        self.removed += other.removed


def object_row(item: Stored) -> dict[str, Any]:
    """An object as a row of the objects' table."""
    low, high = digest.split(item.fingerprint)
    return {
        "table_name": item.table,
        "object_key": item.key,
        "topic": item.topic,
        "version": item.version,
        "value": item.value,
        "fp_lo": low,
        "fp_hi": high,
        "bucket": digest.bucket_of(item.table, item.key),
    }


def assemble(
    effects: Sequence[Effect],
    tx_prev: Point,
    point: Point,
    heads: Mapping[str, Head],
    origin: str,
    written_at: float,
) -> tuple[list[Link], Rows]:
    """Number the changes from ``tx_prev.position + 1`` on, and chain each topic's part to its head.

    ``heads`` holds the previous heads of every touched topic that was ever written.
    """
    position = tx_prev.position
    per_topic: dict[str, list[Change]] = {}
    counts: dict[str, int] = {}
    sums: dict[str, int] = {}
    rows = Rows([], [], [])
    for effect in effects:
        before, table, key = effect.before, effect.table, effect.key
        if before is not None:
            counts[before.topic] = counts.get(before.topic, 0) - 1
            sums[before.topic] = digest.subtract(sums.get(before.topic, 0), before.fingerprint)
        if before is not None and (effect.value is None or effect.moves):
            position += 1
            per_topic.setdefault(before.topic, []).append(Change(table, key, "delete", position, None))
        if effect.value is None:
            rows.removed.append((table, key))
            continue
        position += 1
        action = "create" if before is None or effect.moves else "set"
        per_topic.setdefault(effect.topic, []).append(
            Change(table, key, "create" if action == "create" else "set", position, effect.value)
        )
        fp = digest.fingerprint(table, key, position, effect.value)
        counts[effect.topic] = counts.get(effect.topic, 0) + 1
        sums[effect.topic] = digest.add(sums.get(effect.topic, 0), fp)
        row = object_row(Stored(table, key, effect.topic, position, effect.value, fp))
        (rows.created if before is None else rows.changed).append(row)
    assert position == point.position, "the counter was advanced by another number of changes"
    links = []
    for topic, changes in per_topic.items():
        head = heads.get(topic, EMPTY)
        links.append(
            Link(
                topic=topic,
                prev=head.point,
                point=point,
                changes=changes,
                count=head.count + counts.get(topic, 0),
                digest=digest.add(head.digest, sums.get(topic, 0)),
                tx_prev=tx_prev,
                tx_links=len(per_topic),
                origin=origin,
                written_at=written_at,
            )
        )
    return links, rows
