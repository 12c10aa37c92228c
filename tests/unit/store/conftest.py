"""Fixtures of the store's tests.

The store's rules (docs/protocol.md) are found by the names of tests:
``test_position_…`` (rule S1), ``test_topic_rows_…`` (rule S2), ``test_history_…`` (rules S3 and S5),
``test_isolation_…`` (rule S4), ``test_keys_…`` and ``test_values_…`` (rule S6), ``test_verbs_…`` (rules S7 and S8),
``test_users_transaction_…`` (rule S9), ``test_between_commit_and_publish_…`` (rule S10), ``test_leases_…`` (rule S11),
``test_store_id_…`` (rule S12).
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from pubsub_lib.store import Store, StoreSettings

# Small pages, so that every reading of the tests needs several; short timeouts for tests that expect an error.
SETTINGS = StoreSettings(page_size=3, retry_attempts=20, lock_timeout=2.0, retry_max_seconds=20.0)

LARGE = msgspec.structs.replace(SETTINGS, page_size=100)
"""For tests with hundreds of objects, which read all of them several times."""

Opener = Callable[..., Store]


@pytest.fixture
def open_store(database_url: str) -> Iterator[Opener]:
    """Open stores on the test's database; all of them are closed afterwards."""
    opened: list[Store] = []

    def open_one(**options: Any) -> Store:
        store = Store(database_url, **{"settings": SETTINGS, **options})
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> Store:
    """An open store on an empty database, once on each of the three database systems."""
    return open_store()
