"""The announcements of a replica or a relay: a thread that sends them to the servers of its sync channel."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from pubsub_lib.errors import FrameError, PubSubError, StoreUnavailable
from pubsub_lib.http_routes import POST_HEADER
from pubsub_lib.logs import logger
from pubsub_lib.sync.agent_registry import Known
from pubsub_lib.sync.agents import Agent, Announcement, decode_accepted, encode, fitting
from pubsub_lib.sync.http_call import HttpCall, reason_in
from pubsub_lib.sync.urls import PATH, ChannelUrl, KnownUrls, known_urls
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

AGENTS_PATH: Final = "/agents"
TIMEOUT: Final = 5.0
"""Maximum seconds for one announcement at all URLs together."""
LEAVE_TIMEOUT: Final = 1.0
"""Maximum seconds for the last one, which the shutdown waits for."""
FIRST_PART: Final = 0.25
"""The first announcement is made after a random wait of at most this part of the interval: many start at once."""
EARLY_PART: Final = 0.25
"""An announcement is made by up to this part of the interval early, so that those of many do not stay together."""
NAME_WAIT: Final = 3.0
"""Maximum seconds that an announcement waits for the first hello of the agent's parent."""
NAME_LOOK: Final = 0.2
"""Seconds between two looks at whether the parent's name is known."""
_MAX_ANSWER: Final = 4096
_HEADERS: Final = {POST_HEADER: "agents", "Content-Type": "application/json", "Connection": "close"}
NOTHING_BELOW: Final = Known((), 0)


def agents_url(url: ChannelUrl) -> ChannelUrl:
    """Where the server of this sync channel takes announcements: beside its path ``/sync``."""
    return url._replace(path=url.path.removesuffix(PATH).rstrip("/") + AGENTS_PATH)


class Announcer:
    """Announces an agent every ``interval`` seconds to the first of these URLs (``sync_url``, or those that a function
    knows each time) that accepts, beginning with the one that accepted last. A failure is counted, logged once, and has
    no other consequence.

    ``agent()`` describes the agent, ``below()`` those below a relay; any of them may raise PubSubError while it closes.
    """

    def __init__(
        self,
        urls: str | KnownUrls,
        interval: float,
        agent: Callable[[], Agent],
        below: Callable[[], Known] = lambda: NOTHING_BELOW,
        rng: random.Random | None = None,
        named: Callable[[], bool] = lambda: True,
    ) -> None:
        """``named()``: whether the agent knows the name of its parent. Raises ConfigError for an invalid URL. Connects
        to nothing.
        """
        self._named = named
        self._patience = 0.0
        """Until when an announcement waits for the name of the parent."""
        self._known = known_urls(urls)
        self._urls: list[ChannelUrl] = []
        self._interval = interval
        self._agent = agent
        self._below = below
        self._rng = rng if rng is not None else random.SystemRandom()
        self._counts = dict.fromkeys(("accepted", "failed"), 0)
        self._above: tuple[str, ...] = ()
        self._begun = self._failing = False
        self._last: Agent | None = None
        """The agent as it was accepted last."""
        self._lock = threading.Lock()
        self._call: HttpCall | None = None
        self._closed = False
        self._loop = PeriodicThread("announcer", self.step)

    @property
    def above(self) -> Sequence[str]:
        """The UUIDs of those to which the last announcement went, the nearest first; empty when it failed."""
        return self._above

    def counters(self) -> Mapping[str, int]:
        """Announcements that were accepted, and those that no server accepted. Any thread."""
        return dict(self._counts)

    def start(self) -> None:
        """Start the thread. Raises TransportError."""
        self._loop.start()

    def close(self) -> None:
        """Stop. Announces that the agent leaves, if it is known above; that takes ``LEAVE_TIMEOUT`` at most.
        Idempotent, also without ``start``.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            call = self._call
        self._loop.close(0.0)
        if call is not None:
            call.end()
        if not first or self._last is None or self._failing:
            return
        left = Announcement(agent=self._last, interval=self._interval, leaving=True)
        try:
            self._post(HttpCall(self._urls[0], time.monotonic() + LEAVE_TIMEOUT), encode(left))
        except PubSubError as error:
            self._failed(error)

    def step(self, now: float) -> float:
        """Announce once; returns the time of the next announcement. Blocks for ``TIMEOUT`` at most. An agent that does
        not know the name of its parent yet is announced when it does, or after ``NAME_WAIT``, and again with the name:
        else it would be shown without a parent.
        """
        if not self._begun:
            self._begun = True
            first = now + self._interval * self._rng.uniform(0.0, FIRST_PART)
            self._patience = first + NAME_WAIT
            return first
        named = self._named()
        if not named and now < self._patience:
            return min(now + NAME_LOOK, self._patience)
        again = now + self._interval * self._rng.uniform(1.0 - EARLY_PART, 1.0)
        self._patience = again + NAME_WAIT if named else again
        self._announce(now)
        return again if named else min(now + NAME_LOOK, again)

    def _announce(self, now: float) -> None:
        try:
            self._use_known()
            agent = fitting(self._agent())
            below = self._below()
        except PubSubError as error:  # no server is known, or it is being closed
            self._failed_unless_closed(error)
            return
        announced = Announcement(
            agent=agent, interval=self._interval, below=list(below.agents), left_out=below.left_out
        )
        if self._sent(encode(announced), agent.uuid, now + min(TIMEOUT, self._interval)):
            self._last = agent

    def _use_known(self) -> None:
        known = [agents_url(each) for each in self._known()]
        if set(known) != set(self._urls):
            self._urls = known

    def _sent(self, body: bytes, own: str, deadline: float) -> bool:
        """Whether one of the servers has accepted."""
        error: PubSubError = StoreUnavailable("it is closed")
        for _ in range(len(self._urls)):
            with self._lock:
                if self._closed:
                    break
                call = self._call = HttpCall(self._urls[0], deadline)
            try:
                above = self._post(call, body)
                if own in above:
                    raise StoreUnavailable(f"{self._urls[0]} is below this relay; correct sync_url or parents")
            except PubSubError as failed:
                error = failed
                self._urls = [*self._urls[1:], self._urls[0]]
                if time.monotonic() >= deadline:
                    break  # one that hangs is asked last next time
                continue
            self._accepted(above)
            return True
        self._failed_unless_closed(error)
        return False

    def _post(self, call: HttpCall, body: bytes) -> tuple[str, ...]:
        """Send an announcement; returns the UUIDs above. Raises StoreUnavailable."""
        url = self._urls[0]
        with call.post(body, _HEADERS) as response:
            if response.status != HTTPStatus.OK:
                raise StoreUnavailable(f"{url} answers {response.status}: {reason_in(response)}")
            data = response.read(_MAX_ANSWER)
        try:
            return tuple(decode_accepted(data).above)
        except FrameError as error:
            raise StoreUnavailable(f"{url} is not a service of this library: {error}") from error

    def _accepted(self, above: tuple[str, ...]) -> None:
        self._above = above
        self._counts["accepted"] += 1
        if self._failing:
            self._failing = False
            _log.info("the services above know this agent again")

    def _failed_unless_closed(self, error: PubSubError) -> None:
        """``close`` ends the announcement that is under way, which is no failure."""
        if not self._closed:
            self._failed(error)

    def _failed(self, error: PubSubError) -> None:
        self._above = ()
        self._counts["failed"] += 1
        if not self._failing and not self._closed:
            self._failing = True
            _log.info("this agent cannot announce itself, so pubsub-db agents may not show it: %s", error)
