"""The driver's class: its capabilities, and its settings checked."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from sqlalchemy import URL

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.config.fields import checked_options
from pubsub_lib.errors import ConfigError
from pubsub_lib.store import Store, url
from pubsub_pgnotify.options import PgNotifyOptions
from pubsub_pgnotify.publisher import NotifyingPublisher
from pubsub_pgnotify.session import Session
from pubsub_pgnotify.subscriber import NotifiedSubscriber
from pubsub_sql.driver import STORE
from pubsub_sql.follower import ChangelogReader

NAME: Final = "pgnotify_pubsub_driver"


class PgNotifyDriver(Driver):
    """Polls the changelog, woken at each commit by NOTIFY. It needs only PostgreSQL: two connections for each
    subscriber, and one for each publisher."""

    name: ClassVar[str] = NAME
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False,
        cross_process=True,
        cross_host=True,
        ordered=True,
        carries_envelopes=False,
        needs_store=True,
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher that announces positions. Raises ConfigError for options and URLs it cannot use."""
        options, database = _options(settings.options), _database(settings.store_url)
        session = Session(database, STORE, "announcing changes by NOTIFY", options.max_backoff)
        return NotifyingPublisher(session, settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber on the settings' store. Its thread connects at the first poll.

        Raises ConfigError for options and URLs it cannot use.
        """
        options, database = _options(settings.options), _database(settings.store_url)

        def open_store() -> ChangelogReader:
            return Store(settings.store_url, settings=STORE, limits=settings.limits, create=False)

        return NotifiedSubscriber(
            open_store,
            settings.limits,
            Session(database, STORE, "listening for notifications", options.max_backoff),
            listening=options.listening,
            fastest=options.fastest,
            slowest=options.slowest,
            batch=options.batch,
            max_backoff=options.max_backoff,
        )


def _options(given: Mapping[str, Any]) -> PgNotifyOptions:
    options = checked_options(PgNotifyOptions, given, NAME, "pubsub_pgnotify")
    if options.slowest < options.fastest:
        raise ConfigError(
            f"slowest ({options.slowest} s) is below fastest ({options.fastest} s); raise it in [pubsub_pgnotify]"
        )
    return options


def _database(store_url: str) -> URL:
    if not store_url:
        raise ConfigError(f"{NAME} needs the database; set store_url")
    parsed = url.parse(store_url)
    if parsed.get_backend_name() != "postgresql":
        raise ConfigError(
            f"{NAME} needs PostgreSQL, but store_url is {url.shown(parsed)}; set store_url to a PostgreSQL database, "
            "or pub_sub_driver = db_polling_pubsub_driver"
        )
    return parsed
