"""Which version a change replaced: told by what the same file says before, away from the path of the messages."""

from collections.abc import Iterable, Iterator

import msgspec

from pubsub_lib.journal.rows import Row

_Versions = dict[tuple[str, str], int]


def with_before(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of one file in its order, with ``before`` of what a replica applied, where the file tells it.

    Known is the version that an earlier change of the same topic gave the object, unless something else may have
    changed it since: a full sync, a repair, or that the topic was dropped. Does not block.
    """
    topics: dict[str, _Versions] = {}
    for row in rows:
        if row.kind == "data" and row.outcome == "applied" and row.side == "replica":
            yield _filled(row, topics.setdefault(row.topic, {}))
            continue
        if row.kind == "drop" or (row.kind == "sync_end" and row.outcome not in ("delta", "incomplete")):
            if row.topic:
                topics.pop(row.topic, None)
            else:
                topics.clear()
        yield row


def _filled(row: Row, versions: _Versions) -> Row:
    changes = []
    for change in row.changes:
        identity = (change.table, change.key)
        before = versions.pop(identity, None)
        changes.append(change if before is None else msgspec.structs.replace(change, before=before))
        if change.action != "delete":
            versions[identity] = change.version
    return msgspec.structs.replace(row, changes=tuple(changes))
