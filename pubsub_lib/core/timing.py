"""The configured times, and the bounds on delays that follow from them (rule 13)."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pubsub_lib.errors import ConfigError

MIN_SECONDS: Final = 0.001
"""A shorter timer is a busy loop."""
MAX_SECONDS: Final = 3e9
"""About a century: far below the value at which a timer, or the database's arithmetic, overflows."""

Seconds = Annotated[float, Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All times, in seconds. Each is measured on the clock of the process that waits, never on another process's."""

    max_idle_time: Annotated[
        Seconds,
        Meta(
            description="How often a replica sends a hello request to every publisher. A publisher that sent no "
            "message for this time sends a hello to all subscribers. In seconds."
        ),
    ] = 5.0
    message_delay_window: Annotated[
        Seconds,
        Meta(
            description="How long a message may wait for an earlier one before the missing changes are read from the "
            "database. In seconds."
        ),
    ] = 1.0
    hello_wait: Annotated[
        Seconds,
        Meta(description="How long a new topic waits for a first hello reply before its first sync. In seconds."),
    ] = 1.0
    reading_age: Annotated[
        Seconds,
        Meta(description="Maximum age of the head positions that a publisher sends in a hello. In seconds."),
    ] = 1.0
    round_trip: Annotated[
        Seconds, Meta(description="Allowed time between a hello request and its reply. In seconds.")
    ] = 1.0
    poll_interval: Annotated[
        Seconds,
        Meta(description="How often a replica polls the database while no publisher sends hello replies. In seconds."),
    ] = 2.0
    connect_jitter: Annotated[
        SecondsOrNone,
        Meta(
            description="A replica sends hello requests after a random wait of at most this time when a connection is "
            "made. In seconds."
        ),
    ] = 0.5
    # Without it, replicas that a publisher's restart disconnected would all send their requests at once.
    sync_jitter: Annotated[
        SecondsOrNone, Meta(description="A sync starts after a random wait of at most this time. In seconds.")
    ] = 0.5
    sync_interval: Annotated[
        SecondsOrNone,
        Meta(description="Minimum time between the end of one sync and the start of the next. In seconds."),
    ] = 1.0
    sync_backoff: Annotated[
        Seconds,
        Meta(description="Wait after a failed sync. It doubles with each further failure. In seconds."),
    ] = 1.0
    max_sync_backoff: Annotated[Seconds, Meta(description="Maximum wait after a failed sync. In seconds.")] = 30.0
    sync_timeout: Annotated[
        Seconds, Meta(description="A sync that runs for longer than this counts as failed. In seconds.")
    ] = 60.0
    recount_time: Annotated[
        SecondsOrNone,
        Meta(
            description="A replica compares every object in its memory with its digest once in this time, in small "
            "steps, and reads altered or lost objects again; 0 means never. In seconds."
        ),
    ] = 600.0
    verify_interval: Annotated[
        SecondsOrNone,
        Meta(
            description="A replica compares itself with the database about once in this time, also while publishers "
            "prove that it is fresh, so that changes which were never committed are undone; 0 means never. In seconds."
        ),
    ] = 60.0

    @property
    def stale_after(self) -> float:
        """Time without a fresh proof from any publisher after which a replica polls the store."""
        return 3 * self.max_idle_time

    @property
    def parent_wait(self) -> float:
        """Seconds by which a replica with parents polls later: it leaves its parent at the same time, and after a poll
        before the connection to the next one the links in between would have to be read, too. Part of the bound
        without publishers, since the first poll waits for no interval.
        """
        return min(self.round_trip, self.poll_interval)

    @property
    def max_unverified(self) -> float:
        """Seconds after the last reading of the store for which publishers' proofs count (rule 14). A chain is read
        after at most 1.75 times ``verify_interval`` and a sync's wait."""
        return 2 * self.verify_interval + self.sync_wait if self.verify_interval else float("inf")

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


def anchor_bound(timing: Timing, sync_time: float, sync_wait: float | None = None) -> float:
    """Seconds within which a replica undoes what a publisher sent and the store never contained, and reads what it
    withheld, while the store answers (rule 14); infinite with ``verify_interval = 0``. A chain that was read is read
    again after at most 1.75 times ``verify_interval``: a check finds it read half an interval ago, and the next check
    is 1.25 intervals later. ``sync_time``: of a delta that proves incomplete, and of the full sync that follows.
    """
    wait = timing.sync_wait if sync_wait is None else sync_wait
    return 1.75 * timing.verify_interval + wait + sync_time if timing.verify_interval else float("inf")


def no_publisher_bound(timing: Timing, sync_time: float, sync_wait: float | None = None) -> float:
    """Seconds within which a replica has a change that no publisher reports, while the store answers."""
    wait = timing.sync_wait if sync_wait is None else sync_wait
    return timing.stale_after + timing.poll_interval + wait + sync_time
