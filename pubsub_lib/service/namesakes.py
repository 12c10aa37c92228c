"""Other services that live under our name. Two that share one would each take the other's links for its own, and
replicas would take one for a restart of the other, again and again.
"""

from collections.abc import Sequence
from typing import Final, Protocol

RENEWED: Final = 1 / 6
"""An entry lives when its end moved by this part of a lease; a renewal moves it by a third."""


class Entry(Protocol):
    """A service in the directory."""

    @property
    def service(self) -> str:
        """Its stable name."""

    @property
    def uuid(self) -> str:
        """Its identity since its start."""

    @property
    def address(self) -> str:
        """Where replicas reach it."""

    @property
    def seconds_left(self) -> float:
        """Until its lease ends."""


class Namesakes:
    """Sans-I/O, not thread-safe. An entry alone proves nothing: that of a service that was killed ends by itself. One
    that is *renewed* has somebody behind it.
    """

    def __init__(self, service: str, uuid: str, lease: float) -> None:
        """``lease``: seconds of ours."""
        self._service = service
        self._uuid = uuid
        self._moved = RENEWED * lease
        self._ends: dict[str, float] = {}
        self._before: frozenset[str] | None = None
        self.older: Entry | None = None
        """One that lives and was there before us: we must go."""
        self.younger: Entry | None = None
        """One that lives and came after us; it should go."""

    def seen(self, entries: Sequence[Entry], now: float) -> None:
        """What the directory holds; the first time, before we entered ourselves."""
        others = {each.uuid: each for each in entries if each.service == self._service and each.uuid != self._uuid}
        if self._before is None:
            self._before = frozenset(others)
        self._ends = {uuid: self._ends.get(uuid, now + each.seconds_left) for uuid, each in others.items()}
        living = [each for uuid, each in others.items() if now + each.seconds_left > self._ends[uuid] + self._moved]
        self.older = next((each for each in living if each.uuid in self._before), None)
        self.younger = next((each for each in living if each.uuid not in self._before), None)
