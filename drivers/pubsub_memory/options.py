"""Options of the ``memory`` driver, in the group ``[pubsub_memory]``."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pubsub_lib.config.fields import option, opts_of
from pubsub_lib.core.limits import Positive
from pubsub_lib.core.timing import SecondsOrNone
from pubsub_lib.fault_injection import Chance

BINDS: Final = False
"""Publishers bind no address."""


class MemoryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. In ``DriverSettings.options``, ``bus`` may also be a ``MemoryBus`` itself."""

    bus: Annotated[
        str, Meta(min_length=1), option("Name of the bus. It connects all endpoints that use this name.")
    ] = "default"
    queue_limit: Annotated[
        Positive,
        option("Maximum number of messages queued for one subscriber; further ones are dropped and counted."),
    ] = 10_000
    drop: Annotated[Chance, option("Lose a message. A probability, 0 to 1; for tests.")] = 0.0
    duplicate: Annotated[Chance, option("Deliver a message twice. A probability, 0 to 1; for tests.")] = 0.0
    reorder: Annotated[
        Chance, option("Deliver the next message before this one. A probability, 0 to 1; for tests.")
    ] = 0.0
    delay: Annotated[Chance, option("Delay a message by a random time. A probability, 0 to 1; for tests.")] = 0.0
    max_delay: Annotated[SecondsOrNone, option("Maximum delay of a message. In seconds.")] = 0.1
    seed: Annotated[int, option("Seed of the random choices above.")] = 0


OPTIONS: Final = opts_of(MemoryOptions)
