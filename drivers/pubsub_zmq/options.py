"""Options of ``zmq_pubsub_driver``, in the group ``[pubsub_zmq]``. Needs no ZeroMQ."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from pubsub_lib.config.driver_options import (
    MAX_RECONNECT_INTERVAL,
    RECONNECT_INTERVAL,
    SEND_WAIT,
    SendWait,
    reconnect_conflict,
)
from pubsub_lib.config.fields import checked_options, option, opts_of
from pubsub_lib.errors import ConfigError

EXTRA: Final = "zmq"
"""The extra of this distribution that brings ZeroMQ."""

_MAX: Final = 2**31 // 1000
"""ZeroMQ counts in C's ints, times in milliseconds."""
_Count = Annotated[int, Meta(ge=1, le=_MAX)]
_Seconds = Annotated[float, Meta(ge=0.001, le=_MAX)]
_AtMostASecond = Annotated[float, Meta(ge=0, le=1)]
_KernelSeconds = Annotated[int, Meta(ge=1, le=32_767)]


class ZmqOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. Times in seconds."""

    send_hwm: Annotated[
        _Count,
        option(
            "Maximum number of frames that a publisher buffers for one slow subscriber. Further ones are dropped, and "
            "the subscriber finds the loss by the sequences."
        ),
    ] = 10_000
    receive_hwm: Annotated[
        _Count,
        option(
            "Maximum number of frames that a subscriber buffers for each publisher, and never more than receive_bytes "
            "allows."
        ),
    ] = 10_000
    receive_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=2**40)],
        option(
            "Maximum size of the frames that a subscriber buffers for each publisher. ZeroMQ counts frames, so one for "
            "each 2 * max_frame_bytes of it is buffered, at least one. After that, the system's buffers fill, and then "
            "the publisher buffers up to send_hwm frames."
        ),
    ] = 64 * 1024 * 1024
    max_connections: Annotated[
        _Count,
        option(
            "Maximum number of connections to a publisher's TCP address, and never more than half of the process's "
            "limit of open files. Above it the kernel drops new connections, whose programs retry."
        ),
    ] = 10_000
    max_subscription_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=2**40)],
        option(
            "Maximum size of all different subscriptions of a publisher's subscribers together, without those to "
            "buckets of topics, hellos and replies; each counts 56 bytes more than its topic (with keys 112). ZeroMQ "
            "needs up to 40 bytes of memory for each counted one. Above it the connections that subscribed to most are "
            "ended. 0: 4 KiB, because replicas without keys need none; with keys 4 MiB, which are enough for 26,000 "
            "topics with names of 44 bytes. Raise it for replicas of versions before 1.4 of the wire."
        ),
    ] = 0
    send_queue: Annotated[
        _Count,
        option(
            "Maximum number of envelopes queued for the publisher's sending thread. While the queue is full, senders "
            "wait."
        ),
    ] = 10_000
    send_wait: Annotated[SendWait, SEND_WAIT] = 0.5
    tcp_keepalive_idle: Annotated[
        _KernelSeconds,
        option(
            "Seconds without traffic before TCP probes the peer. A subscriber closes the connection to a publisher "
            "that is silent, or acknowledges nothing, for tcp_keepalive_idle + tcp_keepalive_interval * "
            "tcp_keepalive_count, also without a FIN."
        ),
    ] = 1
    tcp_keepalive_interval: Annotated[_KernelSeconds, option("Seconds between two TCP probes.")] = 1
    tcp_keepalive_count: Annotated[
        int, Meta(ge=1, le=127), option("Unanswered TCP probes before the connection is lost.")
    ] = 3
    tcp_user_timeout: Annotated[
        _KernelSeconds,
        option(
            "Seconds after which a publisher closes the connection to a subscriber that takes or acknowledges nothing: "
            "it is paused, or vanished without a FIN. The frames buffered for it are dropped. When it is back, it "
            "connects again."
        ),
    ] = 30
    connect_timeout: Annotated[_Seconds, option("Maximum duration of connecting with the handshake. In seconds.")] = 5.0
    reconnect_interval: Annotated[_Seconds, RECONNECT_INTERVAL] = 0.1
    max_reconnect_interval: Annotated[_Seconds, MAX_RECONNECT_INTERVAL] = 2.0
    answer_time: Annotated[
        _Seconds, option("How long a subscriber waits for replies to one hello request. In seconds.")
    ] = 5.0
    goodbye_linger: Annotated[
        _AtMostASecond,
        option("Maximum time that a closing publisher tries to send its goodbye to slow subscribers. In seconds."),
    ] = 0.5
    questions_per_second: Annotated[
        _Count,
        option(
            "Maximum number of hello requests that a publisher answers in a second; further ones wait. A request names "
            "up to 2 KiB of topics."
        ),
    ] = 2000

    @property
    def max_silence(self) -> int:
        """Seconds after which a subscriber closes a connection whose publisher is silent or acknowledges nothing."""
        return self.tcp_keepalive_idle + self.tcp_keepalive_interval * self.tcp_keepalive_count

    def buffered_frames(self, max_frame_bytes: int) -> int:
        """The number of frames that a subscriber buffers for each publisher. ZeroMQ accepts twice ``max_frame_bytes``,
        so that a frame that is a bit too large is counted."""
        return min(self.receive_hwm, max(1, self.receive_bytes // (2 * max_frame_bytes)))


OPTIONS: Final = opts_of(ZmqOptions)


def checked(given: Mapping[str, Any]) -> ZmqOptions:
    """Return the options from their names and values. Raises ConfigError for invalid ones."""
    options = checked_options(ZmqOptions, given, "zmq_pubsub_driver", "pubsub_zmq")
    if wrong := reconnect_conflict(options):
        raise ConfigError(f"{wrong} in [pubsub_zmq]")
    return options
