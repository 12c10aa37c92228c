"""What tests of publishers and replicas begin with; who needs something else has a fixture of the same name nearer."""

from collections.abc import Iterator

import pytest

from pubsub_lib import Settings, Store
from tests.unit.world import settings


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    """Settings of the test's own: a database in SQLite and a bus."""
    return settings(sqlite_url)


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    """Its store."""
    with Store(config.store_url) as store:
        yield store
