"""The version that a change replaced: found from earlier records of the same file, outside the path of the messages."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pubsub_lib.journal.rows import ChangeRow, Row

_Changes = Sequence[ChangeRow]


class _Topic:
    """The state of a topic after the rows read so far."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], int] = {}
        """The last known version by table and key."""
        self.runs: dict[tuple[int, int], dict[int, _Changes]] = {}
        """Changes of the parts of large links that are not applied yet, by point and part."""


def with_previous(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of one file in its order, with ``before`` of the changes that a replica applied, where it is known.

    Known is the version from an earlier change of the object in the same topic, unless the object may have changed
    since then by a full sync, a repair, a large link that is not complete in the file, or because the topic was
    dropped. Does not block.
    """
    topics: dict[str, _Topic] = {}
    for row in rows:
        if row.kind == "data" and row.side == "replica" and row.outcome in ("applied", "part"):
            topic = topics.setdefault(row.topic, _Topic())
            yield _filled(row, topic) if row.outcome == "applied" else _kept(row, topic)
            continue
        if row.kind == "drop" or (row.kind == "sync_end" and row.outcome not in ("delta", "incomplete")):
            for name in [row.topic] if row.topic else list(topics):
                if row.kind == "drop":
                    topics.pop(name, None)
                elif name in topics:
                    topics[name].versions.clear()  # but parts still wait for the rest of their link
        yield row


def _kept(row: Row, topic: _Topic) -> Row:
    topic.runs.setdefault((row.position, row.nonce), {})[row.part] = row.changes
    return row


def _filled(row: Row, topic: _Topic) -> Row:
    """Fill an applied link, or the last received part of a link: then all parts are applied here, in their order."""
    run = topic.runs.pop((row.position, row.nonce), {})
    if row.parts <= 1:
        return msgspec.structs.replace(row, changes=_replacing(row.changes, topic))
    run[row.part] = row.changes
    if len(run) < row.parts:
        topic.versions.clear()  # the changes of the other parts are in an earlier file, or were lost
    filled = {part: _replacing(run[part], topic) for part in sorted(run)}
    return msgspec.structs.replace(row, changes=filled[row.part])


def _replacing(changes: _Changes, topic: _Topic) -> tuple[ChangeRow, ...]:
    filled = []
    for change in changes:
        identity = (change.table, change.key)
        before = topic.versions.pop(identity, None)
        filled.append(change if before is None else msgspec.structs.replace(change, before=before))
        if change.action != "delete":
            topic.versions[identity] = change.version
    return tuple(filled)
