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
    _seconds("heartbeat_interval", 1.0, "How often both ends look whether the other one lives."),
    _seconds("heartbeat_timeout", 3.0, "How long a peer may be silent before its connection is given up."),
    cfg.IntOpt("tcp_keepalive_idle", default=10, min=1, help="Seconds without traffic before TCP probes the peer."),
    cfg.IntOpt("tcp_keepalive_interval", default=5, min=1, help="Seconds between two TCP probes."),
    cfg.IntOpt("tcp_keepalive_count", default=3, min=1, help="Unanswered TCP probes before the connection is dead."),
    _seconds("connect_timeout", 5.0, "How long a connection and its handshake may take."),
    _seconds("reconnect_interval", 0.1, "Wait before a lost connection is tried again; it doubles with each failure."),
    _seconds("reconnect_most", 2.0, "Longest wait before a lost connection is tried again."),
    _seconds("answer_time", 5.0, "How long a subscriber listens for answers to one question for a hello."),
    cfg.FloatOpt(
        "goodbye_linger",
        default=0.5,
        min=0.0,
        max=1.0,
        help="How long a publisher that closes tries to bring its goodbye to slow subscribers. In seconds.",
    ),
)
