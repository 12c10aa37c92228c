"""Opens the store that a replica reads from when its program gives none."""

import msgspec

from pubsub_lib.settings import Settings
from pubsub_lib.store import Store, url


def open_own_store(settings: Settings) -> Store:
    """A store to read from, which may not exist yet: a replica does not create the database, but waits for it.

    Warns of a server whose certificate is not verified. Raises ConfigError.
    """
    url.warn_of_unverified_server(settings.store_url)
    # One attempt: the tracker retries by its own rules, and a failure must be visible in the meantime.
    once = msgspec.structs.replace(settings.store, retry_attempts=1)
    return Store(msgspec.structs.replace(settings, store=once), create=False)
