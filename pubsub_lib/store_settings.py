"""How a store treats its database: pool, timeouts, retries, pages. Frozen; made once.

Below the store, because :class:`pubsub_lib.settings.Settings` holds it, and needs no SQLAlchemy.
"""

import math
from typing import Annotated

import msgspec

from pubsub_lib.errors import ConfigError

Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
# The servers count in milliseconds, of 31 bits.
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All times in seconds.

    A writer that stops while it holds the counter stops all writers, therefore ``lock_timeout`` (those who wait) and
    ``idle_in_transaction_timeout`` (the one that stopped) are short. MySQL has no idle-in-transaction timeout
    (MariaDB has), SQLite has neither that nor a statement timeout; both count whole seconds, rounded up, on MariaDB.
    """

    pool_size: Count = 5
    """Connections kept per process and kind (writers, readers); twice as many may be open for a moment."""
    connect_timeout: Seconds = 5.0
    statement_timeout: Seconds = 30.0
    """One SQL statement; a page of a sync is one statement."""
    lock_timeout: Seconds = 5.0
    """Waiting for one lock (SQLite: for the writer's place), and for a free connection of the pool."""
    idle_in_transaction_timeout: Seconds = 10.0
    retry_attempts: Count = 10
    """Tries of one operation that met a deadlock, a lock timeout or a lost connection."""
    retry_max_seconds: Seconds = 30.0
    """No new try begins after this."""
    page_size: Count = 2000
    """Rows read by one statement of a sync."""
    max_delta_links: Count = 100_000
    """A delta of more links is answered as incomplete: a full sync is bounded by the objects, a delta is not."""


def checked(name: str, given: msgspec.Struct) -> None:
    """Check what msgspec checks only when it decodes: the types and bounds of a struct that was made in Python.

    Raises ConfigError, which names the field after ``name``.
    """
    for field in given.__struct_fields__:
        value = getattr(given, field)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"the store's {name}.{field} is {value} but must be finite; correct it")
    try:
        msgspec.convert(msgspec.to_builtins(given), type(given))
    except (msgspec.ValidationError, TypeError) as error:
        reason, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`")
        shown = f".{field} is {getattr(given, field, None)!r} but" if field else ""
        raise ConfigError(f"the store's {name}{shown} must be: {reason}; correct it") from error
