"""Options of ``zmq_pubsub_multiproc_driver``, in the group ``[pubsub_ipc]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg

GROUP: Final = "pubsub_ipc"
"""The group of an INI file; without it, it would be the package's name."""
EXTRA: Final = "zmq"
"""The extra of pubsub-lib that installs the packages that the driver imports."""

OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.IntOpt(
        "buffer",
        default=1000,
        min=1,
        help="Maximum number of messages that a worker buffers while the publisher service is down or slow. Each has "
        "at most max_frame_bytes.",
    ),
    cfg.StrOpt(
        "when_full",
        default="wait",
        choices=["wait", "raise"],
        help="Behaviour of a worker whose buffer is full: wait for room for at most full_wait, or raise "
        "HandoffRejectedError in the writer at once. In both cases the change is in the database and reaches every "
        "replica later.",
    ),
    cfg.FloatOpt(
        "full_wait",
        default=0.5,
        min=0.0,
        max=0.9,
        help="Maximum time that a worker waits for room in its buffer. In seconds.",
    ),
    cfg.FloatOpt(
        "linger",
        default=0.5,
        min=0.0,
        max=1.0,
        help="Maximum time that a closing worker waits until the service has taken the buffered messages. In seconds.",
    ),
    cfg.IntOpt(
        "receive_buffer",
        default=10_000,
        min=1,
        help="Maximum number of messages of each worker that the service buffers. After that, the worker's own buffer "
        "fills.",
    ),
)
