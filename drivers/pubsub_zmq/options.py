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
        help="Frames that a publisher keeps for one subscriber that does not keep up; further ones are dropped, and "
        "the subscriber sees it by the sequences.",
    ),
    cfg.IntOpt("receive_hwm", default=10_000, min=1, help="Frames that a subscriber keeps for each publisher."),
    cfg.IntOpt(
        "send_queue",
        default=10_000,
        min=1,
        help="Envelopes that wait for the publisher's sending thread; when it is full the sender waits.",
    ),
    cfg.FloatOpt(
        "send_wait",
        default=0.5,
        min=0.0,
        max=1.0,
        help="How long a sender waits for a full queue before it gets an error. In seconds.",
    ),
    cfg.IntOpt(
        "tcp_keepalive_idle",
        default=1,
        min=1,
        max=32_767,
        help="Seconds without traffic before TCP probes the peer. A subscriber gives up a publisher that is silent, or "
        "acknowledges nothing, for tcp_keepalive_idle + tcp_keepalive_interval * tcp_keepalive_count, also without a "
        "FIN.",
    ),
    cfg.IntOpt("tcp_keepalive_interval", default=1, min=1, max=32_767, help="Seconds between two TCP probes."),
    cfg.IntOpt(
        "tcp_keepalive_count", default=3, min=1, max=127, help="Unanswered TCP probes before the connection is dead."
    ),
    cfg.IntOpt(
        "tcp_user_timeout",
        default=30,
        min=1,
        max=32_767,
        help="Seconds after which a publisher gives up a subscriber that takes or acknowledges nothing: one that is "
        "paused, or vanished without a FIN. What was kept for it is dropped then; when it is there again, it connects "
        "anew.",
    ),
    _seconds("connect_timeout", 5.0, "How long a connection and its handshake may take."),
    _seconds("reconnect_interval", 0.1, "Wait before a lost connection is tried again; it doubles with each failure."),
    _seconds("max_reconnect_interval", 2.0, "Longest wait before a lost connection is tried again."),
    _seconds("answer_time", 5.0, "How long a subscriber listens for answers to one question for a hello."),
    cfg.FloatOpt(
        "goodbye_linger",
        default=0.5,
        min=0.0,
        max=1.0,
        help="How long a publisher that closes tries to bring its goodbye to slow subscribers. In seconds.",
    ),
    cfg.IntOpt(
        "questions_per_second",
        default=2000,
        min=1,
        help="Questions for a hello that a publisher answers in a second at most; what comes faster waits. One names "
        "up to 2 KiB of topics.",
    ),
)
