"""The times that the promise is made of, and the bound that follows from them (rule 13)."""

from typing import Annotated

import msgspec

from pubsub_lib.errors import ConfigError

Seconds = Annotated[float, msgspec.Meta(gt=0)]
SecondsOrNone = Annotated[float, msgspec.Meta(ge=0)]


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All times, in seconds. Every one is measured on the clock of the process that waits, never on another's."""

    max_idle_time: Seconds = 5.0
    """How often a replica asks every publisher for a hello reply, and after how long without a message a publisher
    sends a hello to all."""
    message_delay_window: Seconds = 1.0
    """How long a link may wait for an earlier one before a delta is read."""
    hello_wait: Seconds = 1.0
    """How long a new topic waits for its first hello reply before the first sync."""
    reading_age: Seconds = 1.0
    """How old a publisher's reading of the heads may be when it says hello."""
    round_trip: Seconds = 1.0
    """Allowance for a question and its answer between a replica and a publisher."""
    poll_interval: Seconds = 2.0
    """How often the store is polled while no publisher proves to be fresh."""
    connect_jitter: SecondsOrNone = 0.5
    """A replica asks for hello replies at a random moment within this time of each connection, so that those that a
    publisher's restart disconnected do not ask together."""
    sync_jitter: SecondsOrNone = 0.5
    """A sync starts at a random moment within this time, so that replicas do not start theirs together."""
    sync_interval: SecondsOrNone = 1.0
    """Least time between the end of one sync and the start of the next."""
    sync_backoff: Seconds = 1.0
    """Wait after a failed sync; doubles with each further failure."""
    max_sync_backoff: Seconds = 30.0
    """Longest wait after a failed sync."""
    sync_timeout: Seconds = 60.0
    """A sync that did not end by then counts as failed."""
    recount_time: SecondsOrNone = 600.0
    """Every object in a replica's memory is counted anew within this time; 0: none is."""

    @property
    def stale_after(self) -> float:
        """Without a fresh proof from any publisher for so long, a replica polls the store."""
        return 3 * self.max_idle_time

    @property
    def sync_wait(self) -> float:
        """Longest wait for a sync that is needed while the store answers: one that runs, rate limit, jitter."""
        return self.sync_timeout + self.sync_interval + self.sync_jitter

    def check(self) -> "Timing":
        """Return self. Raises ConfigError when the times contradict each other."""
        if self.max_sync_backoff < self.sync_backoff:
            raise ConfigError(
                f"max_sync_backoff ({self.max_sync_backoff} s) is below sync_backoff ({self.sync_backoff} s); "
                "raise it or lower the other"
            )
        if self.reading_age + self.round_trip >= self.stale_after:
            raise ConfigError(
                f"reading_age ({self.reading_age} s) plus round_trip ({self.round_trip} s) reaches three times "
                f"max_idle_time ({self.stale_after} s), so no hello could ever be fresh; raise max_idle_time"
            )
        return self


def lost_message_bound(timing: Timing, sync_time: float, sync_wait: float | None = None) -> float:
    """Seconds within which a replica has the change of a message that was lost, while a publisher and the store
    answer. ``sync_time``: how long one sync takes (at most ``timing.sync_timeout``); ``sync_wait``: how long one
    waits to start (default: the configured worst case).
    """
    wait = timing.sync_wait if sync_wait is None else sync_wait
    return (
        timing.max_idle_time + timing.reading_age + timing.round_trip + timing.message_delay_window + wait + sync_time
    )


def reconnection_bound(timing: Timing, sync_time: float, sync_wait: float | None = None) -> float:
    """Seconds after a connection is there again within which a replica has what was lost before it, while a publisher
    and the store answer. The first answer may come from a reading that is older than the connection; the next cannot.
    Then what is on its way is waited for as long as the answer was (``round_trip``), or the window where that is less.
    """
    wait = timing.sync_wait if sync_wait is None else sync_wait
    asked = max(timing.connect_jitter, timing.reading_age) + timing.connect_jitter
    grace = min(timing.round_trip, timing.message_delay_window)
    return asked + timing.round_trip + grace + wait + sync_time


def no_publisher_bound(timing: Timing, sync_time: float, sync_wait: float | None = None) -> float:
    """Seconds within which a replica has a change that no publisher tells it about, while the store answers."""
    wait = timing.sync_wait if sync_wait is None else sync_wait
    return timing.stale_after + timing.poll_interval + wait + sync_time
