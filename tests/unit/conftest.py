"""Fixtures for tests of publishers and replicas. A test file may override them by fixtures of the same names."""

from collections.abc import Iterator

import pytest

from pubsub_lib import Settings, Store
from tests.unit.world import settings


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    """Settings for one test: its own SQLite database and its own bus."""
    return settings(sqlite_url)


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    """The store of ``config``."""
    with Store(config.store_url) as store:
        yield store
