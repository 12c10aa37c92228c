"""A service that answers first syncs from a database that it only reads; e2e/test_standby.py has a real standby."""

import re
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.model import Full, Want
from pubsub_lib.errors import ConfigError, StoreError, StoreUnavailable
from pubsub_lib.service.standby_service import StandbyService
from pubsub_lib.service.status_page import page
from pubsub_lib.sync.question import SyncQuestion
from tests.unit.world import LONG

SERVES = ServiceSettings(role="standby", serve_syncs=True, follow_interval=0.02, lease=0.5)


@pytest.fixture
def config(database_url: str) -> Settings:
    return Settings(store_url=database_url, service_name="standby-1")


@pytest.fixture
def store(config: Settings) -> Store:
    with Store(config.store_url) as store, store.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
    return store


def test_answers_have_no_age_and_nothing_is_written(config: Settings, store: Store) -> None:
    with StandbyService(config, SERVES) as service:
        assert poll(lambda: not service.problems(), LONG)
        answer = service.answer_sync(SyncQuestion({"t": Want()}))
        part = answer.chains["t"]
        assert isinstance(part, Full)
        assert (answer.ages, list(part.topics)) == ({}, ["t"])
        assert service.gauges() == {"standby": {"position": 1.0}}
        assert "Role" in page(service.status_reader("", "")())
    with Store(config.store_url) as again:
        assert list(again.directory.entries()) == []


def test_position_follows_the_copy_and_the_interval_can_be_changed(config: Settings, store: Store) -> None:
    with StandbyService(config, ServiceSettings(role="standby", serve_syncs=True, follow_interval=3600.0)) as service:
        assert poll(lambda: service.gauges()["standby"].get("position") == 1.0, LONG)
        service.adjust(SERVES)
        with Store(config.store_url) as writer, writer.transaction() as tx:
            tx.set("a", "2", 2, topic="t")
        assert poll(lambda: service.gauges()["standby"]["position"] == 2.0, LONG)
        assert (service.stuck(), service.latencies()) == ([], {})


def test_database_that_cannot_be_read_is_a_problem(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StandbyService(config, SERVES) as service:
        assert poll(lambda: not service.problems(), LONG)

        def broken(self: Store, topics: object) -> None:
            raise StoreUnavailable("no database")

        with monkeypatch.context() as patch:
            patch.setattr(Store, "read_heads", broken)
            assert poll(lambda: service.problems() == ["the standby database is not being read"], LONG)
            assert poll(lambda: service.counters()["failures"]["standby"] >= 1, LONG)
        assert poll(lambda: not service.problems(), LONG)
    assert service.problems() == ["the service is not running"]


def test_missing_database_is_named_and_not_made(tmp_path: Path) -> None:
    missing = Settings(store_url=f"sqlite:///{tmp_path}/net.db", service_name="standby-1")
    with pytest.raises(StoreError, match=re.escape("net.db")):
        StandbyService(missing, SERVES)
    assert list(tmp_path.iterdir()) == []


def test_settings_without_syncs_are_refused(config: Settings) -> None:
    with pytest.raises(ConfigError, match="serve_syncs = true"):
        StandbyService(config, ServiceSettings(role="standby"))
