"""Which repeated calls of a handler a changed history explains (docs/protocol.md, rule H2). No I/O."""

from typing import NamedTuple

from pubsub_lib import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import ALL


class _Call(NamedTuple):
    """The last call for an object: its topic and version then, and the number of the call."""

    topic: str
    version: int
    number: int


class Rollbacks:
    """What one handler was called with. For the thread of the handler.

    A call with an older version is explained only if a notice of a changed history came since the last call for this
    object, about the topic that the object was in, or the topic that it is in now; if these are two topics; and if a
    reading of the store brought it, not a message. The next call for the object needs another notice.
    """

    def __init__(self) -> None:
        self._number = 0
        self._changed: dict[str, int] = {}
        """By chain: the number of calls before its last notice."""
        self._last: dict[tuple[str, str], _Call] = {}

    def history_changed(self, change: HistoryChange) -> None:
        """The handler was notified of a changed history."""
        self._changed.update(dict.fromkeys(change.points, self._number))

    def explains(self, event: Event) -> bool:
        """Note a call. Returns whether a changed history explains that its version is an older one."""
        self._number += 1
        ident = event.table, event.key
        last = self._last.get(ident)
        version = event.version or event.old_version or 0  # a delete that a reading found has no version
        self._last[ident] = _Call(event.topic, version, self._number)
        if last is None or version >= last.version or event.topic == last.topic or event.written_at:
            return False
        return any(self._changed.get(chain, -1) >= last.number for chain in (last.topic, event.topic, ALL))
