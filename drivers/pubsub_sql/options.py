"""Options of ``db_polling_pubsub_driver``, in the group ``[pubsub_sql]``."""

from typing import Annotated, Final

import msgspec

from pubsub_lib.config.fields import option, opts_of
from pubsub_lib.core.limits import Positive
from pubsub_lib.core.timing import Seconds

BINDS: Final = False
"""Publishers bind no address."""


class PollingOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own options. Times in seconds."""

    fastest: Annotated[Seconds, option("Interval between two polls while the database changes. In seconds.")] = 0.05
    slowest: Annotated[
        Seconds,
        option(
            "Interval between two polls after a long time without a change; also the maximum delay that polling adds "
            "to a change. In seconds."
        ),
    ] = 1.0
    batch: Annotated[Positive, option("Maximum number of links per read of the changelog.")] = 500
    max_backoff: Annotated[
        Seconds,
        option("Maximum wait between two retries while the database does not answer. In seconds."),
    ] = 15.0


OPTIONS: Final = opts_of(PollingOptions)
