"""Where a replica reads: its syncs from the database or from a sync channel, the directory from the database only.
And where it announces itself: at the sync channel.
"""

import threading
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Final

from pubsub_lib.api import Capabilities
from pubsub_lib.closing import close_all
from pubsub_lib.errors import ConfigError
from pubsub_lib.replica.discovery import Discovery
from pubsub_lib.replica.engine import Engine
from pubsub_lib.replica.own_agent import OwnAgent
from pubsub_lib.replica.own_store import open_own_store
from pubsub_lib.replica.parent_channel import left_server
from pubsub_lib.replica.parent_subscriber import ParentSubscriber
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.sync.announcer import Announcer
from pubsub_lib.sync.client import MAX_RETRY_AFTER, SyncClient
from pubsub_lib.sync.urls import KnownUrls, warn_of_plain_channels

SIBLING_PAUSE: Final = 1.0
"""Maximum seconds until a busy sibling is asked again."""


class Sources:
    """The sources of one replica. ``given`` replaces all those of the settings, and is not closed."""

    def __init__(self, settings: Settings, given: SyncReader | None, parents: ParentSubscriber | None = None) -> None:
        """``parents``: without ``sync_url`` and ``store_url``, syncs are read from the sync channel of the current
        parent, which its hellos name. Connects to nothing. Warns of servers that are not verified. Raises ConfigError.
        """
        own = open_own_store(settings) if given is None and settings.store_url else None
        self._urls: str | KnownUrls = settings.sync_url
        self._client: SyncClient | None = None
        if given is None and settings.sync_url:
            self._client = channel_client(settings)
            if parents is not None:
                self._client.ask_last(partial(left_server, parents))
        elif given is None and own is None and parents is not None:
            self._urls = parents.make_channel()
            self._client = channel_client(settings, self._urls)
        self._own = own
        self._announces = settings if self._client is not None and settings.announce_interval else None
        self._announcer: Announcer | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.store = own if given is None else given if isinstance(given, Store) else None
        """The database, for the directory; None: there is none."""
        reader = given if given is not None else self._client if self._client is not None else own
        assert reader is not None  # the settings have one of them
        self.reader: SyncReader = reader
        """Answers the syncs."""
        self.history: object = reader if self.store is None else self.store
        """Answers whether a commit is in the store's history, if it can."""

    def announce(self, engine: Engine, parents: ParentSubscriber | None, discovery: Discovery | None) -> None:
        """Begin to announce the replica of this engine, if it has a sync channel; nothing after ``close``. Raises
        TransportError.
        """
        settings = self._announces
        with self._lock:
            if settings is None or self._closed:
                return
            agent = OwnAgent(settings, uuid.uuid4().hex, engine, parents, discovery)
            self._announcer = Announcer(self._urls, settings.announce_interval, agent, named=agent.knows_parent)
            self._announcer.start()

    def announcements(self) -> Mapping[str, int]:
        """Announcements by their outcome; empty without a sync channel. Any thread, does not block."""
        return {} if self._announcer is None else self._announcer.counters()

    def close(self) -> None:
        """End a running sync, if it can be ended, and close what was opened here. Announcing that the replica leaves
        takes a second at most.
        """
        with self._lock:
            self._closed = True
        close_all(*(each.close for each in (self._announcer, self._client, self._own) if each is not None))


def check_driver(settings: Settings, capabilities: Capabilities) -> None:
    """Raises ConfigError for a driver by which a replica without a database receives no messages."""
    if settings.store_url:
        return
    if capabilities.needs_store:
        raise ConfigError(
            f"{settings.driver} needs the database, and a replica without store_url has none; set enable_pub_sub = "
            "true and a pub_sub_driver that carries messages, or set store_url"
        )
    if capabilities.bind_based and not settings.addresses and not settings.parents:
        raise ConfigError(
            "a replica without store_url finds no publishers in the directory; set publishers_ips "
            "(Settings.addresses), or parents"
        )


def channel_client(settings: Settings, channel: KnownUrls | None = None) -> SyncClient:
    """A client of the sync channel of ``sync_url``, or of ``channel``. Warns of servers that are not verified."""
    if channel is None:
        warn_of_plain_channels(settings.sync_url)
    return _client(settings, settings.sync_url if channel is None else channel, settings.timing.sync_timeout)


def second_client(settings: Settings, channel: KnownUrls | None = None) -> SyncClient:
    """Another one, for a relay that asks while a replica below it waits for the answer: in half of the time."""
    return _client(settings, settings.sync_url if channel is None else channel, settings.timing.sync_timeout / 2)


def sibling_client(settings: Settings, urls: str) -> SyncClient:
    """One of other relays, which are asked before the database: in half of the time, and again soon, because they are
    few. Warns of servers that are not verified.
    """
    warn_of_plain_channels(urls)
    return _client(settings, urls, settings.timing.sync_timeout / 2, SIBLING_PAUSE)


def _client(
    settings: Settings, urls: str | KnownUrls, timeout: float, max_pause: float = MAX_RETRY_AFTER
) -> SyncClient:
    return SyncClient(
        urls,
        timeout=timeout,
        begin=settings.timing.stale_after,
        max_frame_bytes=settings.limits.max_frame_bytes,
        max_bytes=settings.max_sync_bytes,
        others=callable(urls) and len(settings.parents) > 1,
        max_pause=max_pause,
    )
