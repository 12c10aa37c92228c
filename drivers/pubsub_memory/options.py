"""Options of the ``memory`` driver, in the group ``[pubsub_memory]``. Needs nothing but oslo.config."""

from typing import Final

from oslo_config import cfg


def _chance(name: str, text: str) -> cfg.Opt:
    return cfg.FloatOpt(name, default=0.0, min=0.0, max=1.0, help=f"{text} A probability, 0 to 1; for tests.")


OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt("bus", default="default", help="Name of the bus. Publishers and subscribers of one name meet."),
    cfg.IntOpt(
        "queue_limit",
        default=10_000,
        min=1,
        help="Messages that wait for one subscriber; further ones are dropped and counted.",
    ),
    _chance("drop", "Lose a message."),
    _chance("duplicate", "Deliver a message twice."),
    _chance("reorder", "Let the next message overtake this one."),
    _chance("delay", "Hold a message back for a random time."),
    cfg.FloatOpt("max_delay", default=0.1, min=0.0, help="Longest time a message is held back. In seconds."),
    cfg.IntOpt("seed", default=0, help="Seed of the random choices above."),
)
