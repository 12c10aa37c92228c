"""Options of ``zmq_pubsub_driver``, in the group ``[pubsub_zmq]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg

EXTRA: Final = "zmq"
"""The extra of this distribution that brings ZeroMQ."""


def _seconds(name: str, default: float, text: str) -> cfg.Opt:
    return cfg.FloatOpt(name, default=default, min=0.001, help=f"{text} In seconds.")


OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.IntOpt(
        "send_hwm",
        default=10_000,
        min=1,
        help="Maximum number of frames that a publisher buffers for one slow subscriber. Further ones are dropped, and "
        "the subscriber finds the loss by the sequences.",
    ),
    cfg.IntOpt(
        "receive_hwm",
        default=10_000,
        min=1,
        help="Maximum number of frames that a subscriber buffers for each publisher.",
    ),
    cfg.IntOpt(
        "send_queue",
        default=10_000,
        min=1,
        help="Maximum number of envelopes queued for the publisher's sending thread. While the queue is full, senders "
        "wait.",
    ),
    cfg.FloatOpt(
        "send_wait",
        default=0.5,
        min=0.0,
        max=1.0,
        help="Maximum time that a sender waits for room in a full queue before it gets an error. In seconds.",
    ),
    cfg.IntOpt(
        "tcp_keepalive_idle",
        default=1,
        min=1,
        max=32_767,
        help="Seconds without traffic before TCP probes the peer. A subscriber closes the connection to a publisher "
        "that is silent, or acknowledges nothing, for tcp_keepalive_idle + tcp_keepalive_interval * "
        "tcp_keepalive_count, also without a FIN.",
    ),
    cfg.IntOpt("tcp_keepalive_interval", default=1, min=1, max=32_767, help="Seconds between two TCP probes."),
    cfg.IntOpt(
        "tcp_keepalive_count", default=3, min=1, max=127, help="Unanswered TCP probes before the connection is lost."
    ),
    cfg.IntOpt(
        "tcp_user_timeout",
        default=30,
        min=1,
        max=32_767,
        help="Seconds after which a publisher closes the connection to a subscriber that takes or acknowledges "
        "nothing: it is paused, or vanished without a FIN. The frames buffered for it are dropped. When it is back, it "
        "connects again.",
    ),
    _seconds("connect_timeout", 5.0, "Maximum duration of connecting with the handshake."),
    _seconds("reconnect_interval", 0.1, "Wait before a lost connection is retried; it doubles with each failure."),
    _seconds("max_reconnect_interval", 2.0, "Maximum wait before a lost connection is retried."),
    _seconds("answer_time", 5.0, "How long a subscriber waits for replies to one hello request."),
    cfg.FloatOpt(
        "goodbye_linger",
        default=0.5,
        min=0.0,
        max=1.0,
        help="Maximum time that a closing publisher tries to send its goodbye to slow subscribers. In seconds.",
    ),
    cfg.IntOpt(
        "questions_per_second",
        default=2000,
        min=1,
        help="Maximum number of hello requests that a publisher answers in a second; further ones wait. A request "
        "names up to 2 KiB of topics.",
    ),
)
