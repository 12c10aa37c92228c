"""Which version a change replaced: told by what the same file says before, away from the path of the messages."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pubsub_lib.journal.rows import ChangeRow, Row

_Changes = Sequence[ChangeRow]


class _Topic:
    """What the rows so far tell of a topic."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, str], int] = {}
        """By table and key."""
        self.runs: dict[tuple[int, int], dict[int, _Changes]] = {}
        """Of large links that are not applied yet: what each part changes, by point and part."""


def with_previous(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of one file in its order, with ``before`` of what a replica applied, where the file tells it.

    Known is the version that an earlier change of the same topic gave the object, unless something else may have
    changed it since: a full sync, a repair, a large link of which the file does not hold every part, or that the topic
    was dropped. Does not block.
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
                    topics[name].versions.clear()  # but parts go on waiting for the rest of their link
        yield row


def _kept(row: Row, topic: _Topic) -> Row:
    topic.runs.setdefault((row.position, row.nonce), {})[row.part] = row.changes
    return row


def _filled(row: Row, topic: _Topic) -> Row:
    """An applied link, or the part that made it whole: then all of it is applied here, in the order of its parts."""
    run = topic.runs.pop((row.position, row.nonce), {})
    if row.parts <= 1:
        return msgspec.structs.replace(row, changes=_replacing(row.changes, topic))
    run[row.part] = row.changes
    if len(run) < row.parts:
        topic.versions.clear()  # what the others changed stands in an earlier file, or was lost
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
