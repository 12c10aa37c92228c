"""From the effects of a transaction to its links and rows: pure functions, which tests check without a database."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pubsub_lib.core import digest
from pubsub_lib.core.model import EMPTY, NO_STORE, Change, Head, Link, Point
from pubsub_lib.store.rows import object_row
from pubsub_lib.store.verbs import Effect, Stored


class Commit(msgspec.Struct, frozen=True):
    """A transaction with at least one change: its point (whose nonce identifies it) and its links, one per topic; and
    the id of the store that has it. ``published``: the publisher service that committed it publishes the links.
    """

    point: Point
    nonce: int
    links: Sequence[Link]
    store_id: bytes = NO_STORE
    published: bool = False


class Rows(msgspec.Struct):
    """Writes to the objects' table: new rows, changed rows, and the identities of removed rows."""

    created: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    removed: list[tuple[str, str]]


class Step(msgspec.Struct, frozen=True):
    """A transaction's place in the history: the point ``before`` it, its own, the database's clock in microseconds, the
    heads of those of its topics that have a row, and the store's id.
    """

    before: Point
    point: Point
    now: int
    heads: dict[str, Head]
    store_id: bytes


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
    parts: dict[str, _Part] = {}
    rows = Rows([], [], [])
    for effect in effects:
        table, key, before, value = effect.table, effect.key, effect.before, effect.value
        stays = before is not None and before.topic == effect.topic
        if before is not None:
            part = parts.get(before.topic) or parts.setdefault(before.topic, _Part([]))
            part.count -= 1
            part.fingerprints -= before.fingerprint
            if value is None or not stays:
                position += 1
                part.changes.append(Change(table, key, "delete", position, None))
        if value is None:
            rows.removed.append((table, key))
            continue
        position += 1
        part = parts.get(effect.topic) or parts.setdefault(effect.topic, _Part([]))
        part.changes.append(Change(table, key, "set" if stays else "create", position, value))
        fingerprint, bucket = digest.fingerprint(table, key, position, value), digest.bucket_of(table, key)
        part.count += 1
        part.fingerprints += fingerprint
        row = object_row(Stored(table, key, effect.topic, position, value, fingerprint), bucket)
        (rows.created if before is None else rows.changed).append(row)
    assert position == point.position, "the counter was advanced by another number of changes"
    links = []
    for topic, part in parts.items():
        head = heads.get(topic, EMPTY)
        links.append(
            Link(
                topic=topic,
                prev=head.point,
                point=point,
                changes=part.changes,
                count=head.count + part.count,
                digest=(head.digest + part.fingerprints) & digest.MASK,
                tx_prev=tx_prev,
                tx_links=len(parts),
                origin=origin,
                written_at=written_at,
            )
        )
    return links, rows


class _Part(msgspec.Struct):
    """The part of a transaction on one topic."""

    changes: list[Change]
    count: int = 0
    """Number of objects that it adds."""
    fingerprints: int = 0
    """What it adds to the digest, not yet modulo 2**64."""
