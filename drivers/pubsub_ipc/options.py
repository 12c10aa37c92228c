"""Options of ``zmq_pubsub_multiproc_driver``, in the group ``[pubsub_ipc]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg

EXTRA: Final = "zmq"
"""The extra of pubsub-lib that brings what the driver imports."""

OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.IntOpt(
        "buffer",
        default=1000,
        min=1,
        help="Messages that a worker keeps while the publisher service is away or slow; each is at most "
        "max_frame_bytes long.",
    ),
    cfg.StrOpt(
        "when_full",
        default="wait",
        choices=["wait", "raise"],
        help="What a worker does with one message more: wait for room for at most full_wait, or raise "
        "HandoffRejectedError in the writer at once. Either way the change is in the database and reaches every "
        "replica later.",
    ),
    cfg.FloatOpt(
        "full_wait",
        default=0.5,
        min=0.0,
        max=0.9,
        help="Longest time that a worker waits for room in its buffer. In seconds.",
    ),
    cfg.FloatOpt(
        "linger",
        default=0.5,
        min=0.0,
        max=1.0,
        help="Longest time that a worker which closes waits for the service to take what is buffered. In seconds.",
    ),
    cfg.IntOpt(
        "receive_buffer",
        default=10_000,
        min=1,
        help="Messages of each worker that the service keeps before that worker's own buffer fills.",
    ),
)
