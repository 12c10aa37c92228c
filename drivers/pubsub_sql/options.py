"""Options of ``db_polling_pubsub_driver``, in the group ``[pubsub_sql]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg

OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.FloatOpt(
        "fastest",
        default=0.05,
        min=0.001,
        help="Interval between two polls while the database changes. In seconds.",
    ),
    cfg.FloatOpt(
        "slowest",
        default=1.0,
        min=0.001,
        help="Interval between two polls after a long time without a change; also the maximum delay that polling adds "
        "to a change. In seconds.",
    ),
    cfg.IntOpt("batch", default=500, min=1, help="Maximum number of links per read of the changelog."),
    cfg.FloatOpt(
        "max_backoff",
        default=15.0,
        min=0.001,
        help="Maximum wait between two retries while the database does not answer. In seconds.",
    ),
)
