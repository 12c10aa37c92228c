"""Options of ``pgnotify_pubsub_driver``, in the group ``[pubsub_pgnotify]``. Needs no psycopg."""

from typing import Annotated, Final

import msgspec

from pubsub_lib.config.fields import option, opts_of
from pubsub_lib.core.limits import Positive
from pubsub_lib.core.timing import Seconds

EXTRA: Final = "postgresql"
"""The extra of this distribution that brings psycopg."""
BINDS: Final = False
"""Publishers bind no address."""


class PgNotifyOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. Times in seconds."""

    listening: Annotated[
        Seconds,
        option(
            "Interval between two polls while notifications arrive; also the maximum delay of a change whose program "
            "sends no notification. In seconds."
        ),
    ] = 5.0
    fastest: Annotated[
        Seconds,
        option(
            "Without a connection for notifications: interval between two polls while the database changes. With one: "
            "minimum interval between two polls for notifications, when the last one found no change. In seconds."
        ),
    ] = 0.05
    slowest: Annotated[
        Seconds,
        option(
            "Without a connection for notifications: interval between two polls after a long time without a change. "
            "In seconds."
        ),
    ] = 1.0
    batch: Annotated[Positive, option("Maximum number of links per read of the changelog.")] = 500
    max_backoff: Annotated[
        Seconds,
        option(
            "Maximum wait between two retries to read or to connect, while the database does not answer. In seconds."
        ),
    ] = 15.0


OPTIONS: Final = opts_of(PgNotifyOptions)
