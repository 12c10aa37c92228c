"""Options of the ``memory`` driver, in the group ``[pubsub_memory]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg


def _chance(name: str, text: str) -> cfg.Opt:
    return cfg.FloatOpt(name, default=0.0, min=0.0, max=1.0, help=f"{text} A probability, 0 to 1; for tests.")


OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt("bus", default="default", help="Name of the bus. It connects all endpoints that use this name."),
    cfg.IntOpt(
        "queue_limit",
        default=10_000,
        min=1,
        help="Maximum number of messages queued for one subscriber; further ones are dropped and counted.",
    ),
    _chance("drop", "Lose a message."),
    _chance("duplicate", "Deliver a message twice."),
    _chance("reorder", "Deliver the next message before this one."),
    _chance("delay", "Delay a message by a random time."),
    cfg.FloatOpt("max_delay", default=0.1, min=0.0, help="Maximum delay of a message. In seconds."),
    cfg.IntOpt("seed", default=0, help="Seed of the random choices above."),
)
