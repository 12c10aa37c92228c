"""Options that several drivers have: of reconnection, and of the wait for room in the send queue; and their checks.

A driver's struct declares the field with its own bounds: ``reconnect_interval: Annotated[Mine, RECONNECT_INTERVAL]``.
"""

from typing import Annotated, Final, Protocol

from msgspec import Meta

from pubsub_lib.config.fields import option

SendWait = Annotated[float, Meta(ge=0, le=1)]
"""Seconds that ``send_event`` may block: at most what its contract allows."""

SEND_QUEUE: Final = option(
    "Maximum number of envelopes queued for the sending thread. While the queue is full, senders wait."
)
SEND_WAIT: Final = option(
    "Maximum time that a sender waits for room in a full queue before it gets an error. In seconds."
)
RECONNECT_INTERVAL: Final = option(
    "Wait before a lost connection is retried; it doubles with each failure. In seconds."
)
MAX_RECONNECT_INTERVAL: Final = option("Maximum wait before a lost connection is retried. In seconds.")


class Reconnecting(Protocol):
    """The options of a driver that connects again."""

    @property
    def reconnect_interval(self) -> float:
        """The first wait, in seconds."""

    @property
    def max_reconnect_interval(self) -> float:
        """The maximum wait, in seconds."""


def reconnect_conflict(options: Reconnecting) -> str:
    """Why the two waits exclude each other, for an error that ends with the group; "" when they do not."""
    if options.max_reconnect_interval >= options.reconnect_interval:
        return ""
    return (
        f"max_reconnect_interval ({options.max_reconnect_interval} s) is below reconnect_interval "
        f"({options.reconnect_interval} s); raise it"
    )


def half_given(options: object, *pairs: tuple[str, str]) -> str:
    """Which of these pairs of options has only one value, for an error that ends with the group; "" when none."""
    for one, other in pairs:
        if bool(getattr(options, one)) != bool(getattr(options, other)):
            return f"of {one} and {other} only one is given; set both or none"
    return ""
