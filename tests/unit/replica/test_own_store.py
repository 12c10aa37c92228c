"""The store that a replica opens itself."""

import logging
from pathlib import Path

import pytest

from pubsub_lib import Settings
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.replica.own_store import open_own_store


def test_own_store_creates_nothing_and_fails_at_the_first_attempt(tmp_path: Path) -> None:
    with open_own_store(Settings(store_url=f"sqlite:///{tmp_path}/net.db")) as store:
        assert store.settings.retry_attempts == 1
        with pytest.raises(StoreUnavailable):
            store.read_heads([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("query", "warned"), [("", True), ("?sslmode=verify-full", False)])
def test_replica_warns_of_an_unverified_database_server(
    query: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        open_own_store(Settings(store_url=f"postgresql://me:tOpSeCrEt@db/net{query}")).close()
    assert (caplog.text.count("the database server db is not verified") == 1) is warned
    assert "tOpSeCrEt" not in caplog.text
