"""The settings of an audit, and the moment of its reading. Times are in microseconds, as in the journals."""

from typing import Final

import msgspec

from pubsub_lib.errors import ConfigError

SECOND: Final = 1_000_000
PARTICIPANTS: Final = ("writer", "service", "relay", "replica")
"""The sides of the runs that an audit expects records from."""
DRIFT: Final = 1000
"""Two clocks drift apart by less than one microsecond in this number of microseconds."""
MEASURED: Final = "database"
"""The ``peer`` of a store's ``changelog`` record that has a difference of clocks."""
_MAX: Final = 36_525 * 86_400 * SECOND
"""A hundred years: the sum of a wall clock time and a setting fits into Spark's integers."""


class AuditSettings(msgspec.Struct, frozen=True):
    """See docs/audit.md, "Settings". ``strict``: reordered and repeated messages count as faults, too."""

    window: int = 60 * SECOND
    grace: int = 30 * SECOND
    bound: int = 10 * SECOND
    silence: int = 60 * SECOND
    strict: bool = False

    @property
    def reach(self) -> int:
        """The time from an item to its horizon: later evidence only separates losses from belated items
        (audit-verdicts.md, "Words").
        """
        return self.bound + 2 * self.grace

    @property
    def drift_unit(self) -> int:
        """The unit in which the age of a comparison of two clocks counts: they drift apart by little in this time."""
        return max(100 * self.bound, SECOND // 10)

    def __post_init__(self) -> None:
        for name, least in (("window", 1), ("grace", 0), ("bound", 0), ("silence", 0)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name} is {value} microseconds; it must be at least {least}")
            if value > _MAX:
                raise ConfigError(f"{name} is {value} microseconds; it must be at most {_MAX}, which are 100 years")


class Listing(msgspec.Struct, frozen=True):
    """The reading of one domain's files: when its folders were listed (wall clock), and how long it then took until all
    were read; both in microseconds.
    """

    wall: int
    took: int
