"""Options of ``db_polling_pubsub_driver``, in the group ``[pubsub_sql]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg

OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.FloatOpt(
        "fastest",
        default=0.05,
        min=0.001,
        help="Interval between two looks at the database while it changes. In seconds.",
    ),
    cfg.FloatOpt(
        "slowest",
        default=1.0,
        min=0.001,
        help="Interval after a long time without a change; also the most that polling adds to a change's way. "
        "In seconds.",
    ),
    cfg.IntOpt("batch", default=500, min=1, help="Links read from the changelog at once."),
    cfg.FloatOpt(
        "max_backoff",
        default=15.0,
        min=0.001,
        help="Longest wait between two tries while the database does not answer. In seconds.",
    ),
)
