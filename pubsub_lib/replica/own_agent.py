"""The description of a running replica, or of a relay, for its announcements."""

import heapq
import socket
from collections.abc import Callable, Sequence
from typing import Final

from pubsub_lib.core.model import MAX_NAME_BYTES
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.replica.discovery import Discovery
from pubsub_lib.replica.engine import Engine
from pubsub_lib.replica.parent_subscriber import ParentSubscriber
from pubsub_lib.settings import Settings
from pubsub_lib.sync.agents import MAX_ADDRESSES, MAX_TOPICS, Agent, Role
from pubsub_lib.version import __version__

_UNNAMED: Final = "unknown"


class OwnAgent:
    """Describes one replica, or relay, at each call. Any thread; takes the replica's lock for a short time."""

    def __init__(
        self,
        settings: Settings,
        uuid: str,
        engine: Engine,
        parents: ParentSubscriber | None,
        discovery: Discovery | None,
        role: Role = "replica",
        address: Callable[[], str] = str,
    ) -> None:
        """``address()``: of a relay, where replicas reach it."""
        self._host = _plain(socket.gethostname())
        self._name = settings.service_name if role == "relay" else settings.replica_name or self._host
        self._uuid = uuid
        self._engine = engine
        self._parent: Callable[[], str] = lambda: "" if parents is None else parents.publisher
        self.knows_parent: Callable[[], bool] = lambda: parents is None or parents.publisher != ""
        """Whether the name of the parent is known, if the replica has parents. Any thread, does not block."""
        self._listens_to: Callable[[], Sequence[str]] = lambda: (
            (parents.current,)
            if parents is not None
            else (*settings.fixed_addresses, *(() if discovery is None else discovery.addresses))
        )
        self._role: Role = role
        self._address = address

    def __call__(self) -> Agent:
        """The description now."""
        address = self._address()
        topics, staleness = self._engine.read(self._look)
        return Agent(
            uuid=self._uuid,
            name=self._name,
            role=self._role,
            host=self._host,
            version=__version__,
            topics=tuple(heapq.nsmallest(MAX_TOPICS, topics)),
            topics_total=len(topics),
            staleness=None if staleness == float("inf") else max(0.0, staleness),
            parent=self._parent(),
            listens_to=tuple(each for each in self._listens_to() if _is_short(each))[:MAX_ADDRESSES],
            address=address if _is_short(address) else "",
        )

    def _look(self, state: ReplicaState) -> tuple[Sequence[str], float]:
        return tuple(state.tracker.topics), state.tracker.staleness(self._engine.now())


def _plain(host: str) -> str:
    return host.encode(errors="replace")[:MAX_NAME_BYTES].decode(errors="ignore") or _UNNAMED


def _is_short(address: str) -> bool:
    """Whether an announcement may name this address; the directory may hold longer ones."""
    return len(address.encode(errors="replace")) <= MAX_NAME_BYTES and "\0" not in address
