"""Which records of journals are shown."""

from collections.abc import Sequence

import msgspec

from pubsub_lib.journal.rows import ChangeRow, Row


class Selection(msgspec.Struct, frozen=True):
    """Conditions that a record must all meet; None: any record does. Times are microseconds.

    A record is selected by ``table`` and ``key`` when one of its changes has both.
    """

    topic: str | None = None
    table: str | None = None
    key: str | None = None
    kinds: frozenset[str] = frozenset()
    """Empty: all kinds."""
    since: int | None = None
    until: int | None = None
    """The first moment that is not selected any more."""

    def has(self, row: Row) -> bool:
        """Whether the record is selected."""
        return (
            (self.topic is None or row.topic == self.topic)
            and (not self.kinds or row.kind in self.kinds)
            and (self.since is None or row.wall >= self.since)
            and (self.until is None or row.wall < self.until)
            and ((self.table is None and self.key is None) or any(map(self._has, row.changes)))
        )

    def changes(self, row: Row) -> Sequence[ChangeRow]:
        """The changes of a record, those that are selected by ``table`` and ``key`` first."""
        return sorted(row.changes, key=lambda each: not self._has(each))

    def _has(self, change: ChangeRow) -> bool:
        return self.table in (None, change.table) and self.key in (None, change.key)
