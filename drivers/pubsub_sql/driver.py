"""The polling driver's class: its capabilities, and its settings checked."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.config.fields import checked_options
from pubsub_lib.errors import ConfigError
from pubsub_lib.store import Store, StoreSettings, url
from pubsub_sql.follower import ChangelogReader
from pubsub_sql.options import PollingOptions
from pubsub_sql.publisher import PollingPublisher
from pubsub_sql.subscriber import PollingSubscriber

# One connection, short timeouts and no retries in the store: the subscriber has its own backoff, and close() must not
# wait for a database that does not answer.
STORE: Final = StoreSettings(
    pool_size=1, connect_timeout=2.0, statement_timeout=10.0, lock_timeout=2.0, retry_attempts=1
)


class PollingDriver(Driver):
    """Polls the changelog. It needs only a connection to the database. Its cost grows with the number of changes, not
    with the size of the tables."""

    name: ClassVar[str] = "db_polling_pubsub_driver"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False,
        cross_process=True,
        cross_host=True,
        ordered=True,
        carries_envelopes=False,
        needs_store=True,
        connections=False,
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher that sends nothing. Raises ConfigError for options it cannot use."""
        _checked(settings.options)
        return PollingPublisher()

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber on the settings' store. Its thread opens the store at the first poll.

        Raises ConfigError for options and URLs it cannot use.
        """
        options = _checked(settings.options)
        if not settings.store_url:
            raise ConfigError("db_polling_pubsub_driver needs the database; set store_url")
        url.parse(settings.store_url)

        def open_store() -> ChangelogReader:
            return Store(settings.store_url, settings=STORE, limits=settings.limits, create=False)

        return PollingSubscriber(
            open_store,
            settings.limits,
            fastest=options.fastest,
            slowest=options.slowest,
            batch=options.batch,
            max_backoff=options.max_backoff,
        )


def _checked(given: Mapping[str, Any]) -> PollingOptions:
    options = checked_options(PollingOptions, given, "db_polling_pubsub_driver", "pubsub_sql")
    if options.slowest < options.fastest:
        raise ConfigError(
            f"slowest ({options.slowest} s) is below fastest ({options.fastest} s); raise it in [pubsub_sql]"
        )
    return options
