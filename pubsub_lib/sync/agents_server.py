"""The server's side of announcements: ``POST /agents`` and ``GET /agents`` of a service's HTTP endpoint."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final, Literal

from pubsub_lib.errors import FrameError
from pubsub_lib.http_routes import Answered, Body, Query, Streamed
from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import (
    MAX_ABOVE,
    MAX_AGENTS,
    MAX_ANNOUNCEMENT_BYTES,
    MAX_BYTES,
    Accepted,
    Agents,
    decode_announcement,
    encode,
)
from pubsub_lib.version import __version__

POST_ROUTE: Final = "POST /agents"
GET_ROUTE: Final = "GET /agents"
JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_FULL: Final = f"this service knows {MAX_AGENTS} agents, or {MAX_BYTES} bytes of them, and has no place for another one"


class AgentsRoute:
    """Takes announcements into a registry, and answers with the agents in it. Any thread.

    ``above()``: the UUIDs of those to which this relay's own announcements go, the nearest first.
    """

    max_body_bytes: Final = MAX_ANNOUNCEMENT_BYTES
    max_seconds: Final = 5.0

    def __init__(
        self,
        registry: AgentRegistry,
        service: str,
        role: Literal["origin", "relay"],
        address: str,
        above: Callable[[], Sequence[str]] = tuple,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``service``: the name of who answers, with its ``role``. Replicas reach it at ``address``, or ""."""
        self._registry = registry
        self._own = service, role, address
        self._above = above
        self._now = now
        self._one = threading.Lock()
        """One announcement is decoded at a time: the objects need several times the memory of the bytes."""
        self._counts = dict.fromkeys(("accepted", "refused", "full"), 0)

    def counters(self) -> Mapping[str, int]:
        """Announcements by their outcome. ``refused``: they cannot be decoded. ``full``: there was no place."""
        with self._one:
            return dict(self._counts)

    def gauges(self) -> Mapping[str, float]:
        """See :meth:`.AgentRegistry.gauges`."""
        return self._registry.gauges(self._now())

    @contextmanager
    def serve(self, body: Body, *, gzip: bool) -> Iterator[Streamed]:
        """The answer to one announcement."""
        status, text, kind = self._taken(body.read())
        yield Streamed(status, kind, iter([text]), {})

    def agents(self) -> Agents:
        """Who answers, and the agents now."""
        known = self._registry.known(self._now())
        service, role, address = self._own
        return Agents(
            service=service, uuid=self._registry.own, role=role, address=address, version=__version__,
            agents=list(known.agents), left_out=known.left_out,
        )  # fmt: skip

    def answer(self, query: Query) -> Answered:
        """The agents, as JSON."""
        return HTTPStatus.OK, encode(self.agents()), JSON

    def _taken(self, data: bytes) -> Answered:
        with self._one:
            try:
                announced = decode_announcement(data)
            except FrameError as error:
                self._counts["refused"] += 1
                return HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), _TEXT
            if not self._registry.receive(announced, self._now()):
                self._counts["full"] += 1
                return HTTPStatus.SERVICE_UNAVAILABLE, f"{_FULL}\n".encode(), _TEXT
            self._counts["accepted"] += 1
        above = [self._registry.own, *self._above()]
        return HTTPStatus.OK, encode(Accepted(above[:MAX_ABOVE])), JSON
