"""The configured times, and the bounds on delays that follow from them (rule 13)."""

from typing import Annotated

import msgspec

from pubsub_lib.errors import ConfigError

Seconds = Annotated[float, msgspec.Meta(gt=0)]
SecondsOrNone = Annotated[float, msgspec.Meta(ge=0)]


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All times, in seconds. Each is measured on the clock of the process that waits, never on another process's."""

    max_idle_time: Seconds = 5.0
    """Interval at which a replica requests a hello reply from every publisher, and time without a message after which a
    publisher broadcasts a hello."""
    message_delay_window: Seconds = 1.0
    """How long a link may wait for an earlier one before a delta is read."""
    hello_wait: Seconds = 1.0
    """How long a new topic waits for its first hello reply before the first sync."""
    reading_age: Seconds = 1.0
    """Maximum age of a publisher's reading of the heads when it makes a hello."""
    round_trip: Seconds = 1.0
    """Allowance for a hello request and its reply between a replica and a publisher."""
    poll_interval: Seconds = 2.0
    """Interval at which the store is polled while no publisher proves to be fresh."""
    connect_jitter: SecondsOrNone = 0.5
    """A replica requests hello replies at a random moment within this time of each connection, so that replicas that a
    publisher's restart disconnected do not all request them at once."""
    sync_jitter: SecondsOrNone = 0.5
    """A sync starts at a random moment within this time, so that replicas do not start theirs at once."""
    sync_interval: SecondsOrNone = 1.0
    """Minimum time between the end of one sync and the start of the next."""
    sync_backoff: Seconds = 1.0
    """Wait after a failed sync; doubles with each further failure."""
    max_sync_backoff: Seconds = 30.0
    """Maximum wait after a failed sync."""
    sync_timeout: Seconds = 60.0
    """A sync that takes longer counts as failed."""
    recount_time: SecondsOrNone = 600.0
    """Every object in a replica's memory is recounted within this time; 0: never."""

    @property
    def stale_after(self) -> float:
        """Time without a fresh proof from any publisher after which a replica polls the store."""
        return 3 * self.max_idle_time

    @property
    def sync_wait(self) -> float:
        """Maximum wait for a needed sync while the store answers: a running sync, rate limit, jitter."""
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
    """Seconds after a reconnection within which a replica has the changes that were lost before it, while a publisher
    and the store answer. The first answer may come from a reading that is older than the connection; the next cannot.
    Then the replica waits for messages on their way, as long as the answer took (``round_trip``), or for the window if
    that is shorter.
    """
    wait = timing.sync_wait if sync_wait is None else sync_wait
    asked = max(timing.connect_jitter, timing.reading_age) + timing.connect_jitter
    grace = min(timing.round_trip, timing.message_delay_window)
    return asked + timing.round_trip + grace + wait + sync_time


def no_publisher_bound(timing: Timing, sync_time: float, sync_wait: float | None = None) -> float:
    """Seconds within which a replica has a change that no publisher reports, while the store answers."""
    wait = timing.sync_wait if sync_wait is None else sync_wait
    return timing.stale_after + timing.poll_interval + wait + sync_time
