"""Options that several drivers have: of reconnection, of the wait for room in the send queue, and the files of TLS; and
their checks.

A driver's struct declares the field with its own bounds: ``reconnect_interval: Annotated[Mine, RECONNECT_INTERVAL]``.
"""

import ssl
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from pubsub_lib.config.fields import option
from pubsub_lib.errors import ConfigError
from pubsub_lib.masking import masked_repr

SendWait = Annotated[float, Meta(ge=0, le=1)]
"""Seconds that ``send_event`` may block: at most what its contract allows."""

QUESTIONS_PER_SECOND: Final = option(
    "Maximum number of hello requests that a publisher answers in a second; further ones wait."
)
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


class DriverOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base class of options with a password, which is not shown."""

    def __repr__(self) -> str:
        """Without the values of secrets."""
        return masked_repr(self.__struct_fields__, self)


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


def conflict(options: Reconnecting, *pairs: tuple[str, str]) -> str:
    """What is wrong with the waits, or with pairs of options that need each other, for such an error."""
    return half_given(options, *pairs) or reconnect_conflict(options)


def tls_context(options: object, group: str, prefix: str = "") -> ssl.SSLContext:
    """For a client with the files of ``ca_file``, ``cert_file`` and ``key_file``, whose names begin with ``prefix``.

    With a ``ca_file``, the authorities of the system do not count. Raises ConfigError.
    """
    ca, cert, key = (getattr(options, f"{prefix}{name}") for name in ("ca_file", "cert_file", "key_file"))
    read = f"{prefix}ca_file = {ca!r}"
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            read = f"{prefix}cert_file = {cert!r} with {prefix}key_file = {key!r}"
            context.load_cert_chain(cert, key)
    except OSError as error:  # an SSLError, too
        raise ConfigError(f"{read} in [{group}] cannot be used: {error}; correct it") from error
    return context
