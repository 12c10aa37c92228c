"""How a store treats its database: pool, timeouts, retries, pages. Frozen; made once."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


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
