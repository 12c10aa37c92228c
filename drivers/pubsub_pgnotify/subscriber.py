"""The receiving half: the polling subscriber, which a notification wakes in place of its next interval."""

import time
from collections.abc import Callable, Mapping

from pubsub_lib.core.limits import Limits
from pubsub_pgnotify import announcement
from pubsub_pgnotify.announcement import ReadGate
from pubsub_pgnotify.session import Session
from pubsub_sql.follower import ChangelogReader
from pubsub_sql.subscriber import PollingSubscriber


class NotifiedSubscriber(PollingSubscriber):
    """The same thread polls, and waits for notifications on a connection of its own. Without that connection it polls
    as its base class does, and connects again: for that time, at most the connect timeout, it does not poll.

    ``listening``: seconds between two polls while it is connected; the others are those of the base class.
    """

    def __init__(
        self,
        open_store: Callable[[], ChangelogReader],
        limits: Limits,
        session: Session,
        *,
        listening: float,
        fastest: float,
        slowest: float,
        batch: int,
        max_backoff: float,
    ) -> None:
        super().__init__(open_store, limits, fastest=fastest, slowest=slowest, batch=batch, max_backoff=max_backoff)
        self._session = session
        self._gate = ReadGate(fastest, slowest)
        self._listening = listening
        self._channel = ""
        self._is_new = False
        """Whether the connection was made since the last poll."""
        self._notifications = 0

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`. The database need not answer yet."""

        def prepare() -> Callable[[], None]:
            self._session.open()
            return self._run

        self._life.start("pubsub-notified", prepare)

    def counters(self) -> Mapping[str, int]:
        """Those of polling; ``notifications`` received, of which ``foreign`` ones were dropped; ``connections`` made
        for them, and ``lost_connections``."""
        return {**super().counters(), **self._session.counts, "notifications": self._notifications}

    def _notify(self) -> None:
        super()._notify()
        self._session.wake()

    # -- the polling thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._session.close()

    def _poll(self) -> float:
        self._follower.expects_links = self._gate.expects_change
        pause = super()._poll()
        self._gate.polled(self._follower.at, time.monotonic())
        if self._failing or self._life.closed:
            return pause
        if self._is_new and self._session.connected:
            self._is_new = False
            self._life.connected()  # this poll began after LISTEN: no later commit is missed
        channel = announcement.channel(self._follower.store_id)
        if channel != self._channel:
            self._channel = channel
            self._session.disconnect()
        if self._session.connect(f'LISTEN "{channel}"'):
            self._is_new = True
            return 0.0
        return self._listening if self._session.connected else min(pause, self._session.retry_in)

    def _wait(self, pause: float) -> None:
        until = time.monotonic() + pause
        listens = self._session.connected
        while self._session.connected == listens:  # at a loss: poll at once
            with self._changed:
                if self._poll_now or self._life.closed:
                    return
            left = until - time.monotonic()
            if left <= 0:
                return
            for payload in self._session.wait(left):
                due = self._due(payload)
                if not self._failing:  # a changelog that cannot be read is read again after a growing wait
                    until = min(until, due)

    def _due(self, payload: bytes) -> float:
        """The time of the next poll after this notification."""
        self._notifications += 1
        point = announcement.announced(payload)
        if point is None:
            self._life.counts["foreign"] += 1
            return float("inf")
        return self._gate.due(point, time.monotonic())
