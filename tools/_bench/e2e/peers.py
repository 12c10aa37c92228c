"""The option ``--peers`` and its names. SQLite, which needs nothing, is always measured."""

from collections.abc import Sequence
from typing import Final

POSTGRESQL: Final = "postgresql"
"""This library on PostgreSQL and its peer on the same server, LISTEN/NOTIFY by hand."""
NAMES: Final = (POSTGRESQL, "etcd", "ovsdb", "nats", "redis")


def parsed(text: str) -> Sequence[str]:
    """The names of the option's value: ``none``, or names with commas. Raises ValueError."""
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in NAMES:
            raise ValueError(f"{name!r} is none of {', '.join(NAMES)}; or give 'none'")
    return names
