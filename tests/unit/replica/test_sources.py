"""Where a replica reads: the settings' sources, and those that contradict each other."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.api import Capabilities
from pubsub_lib.core.model import ZERO, SyncAnswer, Want
from pubsub_lib.errors import ConfigError, StoreUnavailable
from pubsub_lib.replica.parent_subscriber import ParentSubscriber
from pubsub_lib.replica.sources import Sources, check_driver
from pubsub_lib.sync.client import SyncClient
from tests.unit.replica.test_parent_subscriber import Driver

URL = "http://127.0.0.1:1"
BOUND = Capabilities(bind_based=True, cross_process=True, cross_host=True, ordered=True)
BROKER = Capabilities(bind_based=False, cross_process=True, cross_host=True, ordered=True)
POLLING = Capabilities(
    bind_based=False, cross_process=True, cross_host=True, ordered=True, carries_envelopes=False, needs_store=True
)


class Reader:
    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        return SyncAnswer(ZERO, {})


def test_database_alone_is_read_for_everything(tmp_path: Path) -> None:
    sources = Sources(Settings(store_url=f"sqlite:///{tmp_path}/net.db"), None)
    assert isinstance(sources.reader, Store)
    assert sources.reader is sources.store is sources.history
    sources.close()


def test_sync_channel_alone_needs_no_database() -> None:
    sources = Sources(Settings(sync_url=URL), None)
    assert isinstance(sources.reader, SyncClient)
    assert sources.store is None
    assert sources.history is sources.reader
    sources.close()


def test_with_both_the_database_has_the_directory_and_the_history_only(tmp_path: Path) -> None:
    sources = Sources(Settings(store_url=f"sqlite:///{tmp_path}/net.db", sync_url=URL), None)
    assert isinstance(sources.reader, SyncClient)
    assert isinstance(sources.store, Store)
    assert sources.history is sources.store
    sources.close()


PARENTS = ("tcp://10.0.0.7:8866",)


def with_parents(**given: Any) -> tuple[Settings, ParentSubscriber]:
    settings = Settings(parents=PARENTS, **given)
    return settings, ParentSubscriber(Driver(), settings.parents, settings.timing)


def test_parents_alone_need_no_database_and_no_url() -> None:
    settings, parents = with_parents()
    sources = Sources(settings, None, parents)
    assert isinstance(sources.reader, SyncClient)
    assert sources.store is None
    with pytest.raises(StoreUnavailable, match=r"the parent at tcp://10.0.0.7:8866 has named no sync channel"):
        sources.reader.read_sync({"t": Want()})
    sources.close()


@pytest.mark.parametrize("where", ["sync_url", "store_url"])
def test_url_of_the_settings_replaces_that_of_the_parent(where: str, tmp_path: Path) -> None:
    url = {"sync_url": URL, "store_url": f"sqlite:///{tmp_path}/net.db"}[where]
    settings, parents = with_parents(**{where: url})
    sources = Sources(settings, None, parents)
    if isinstance(sources.reader, SyncClient):
        assert [str(each) for each in sources.reader._urls] == [f"{URL}/sync"]
    else:
        assert where == "store_url"
        assert sources.reader is sources.store
    sources.close()


def test_server_of_the_parent_that_was_left_is_asked_last() -> None:
    settings, parents = with_parents(sync_url="http://10.0.0.7:8867,http://10.0.0.8:8867")
    reader = Sources(settings, None, parents).reader
    assert isinstance(reader, SyncClient)
    assert reader._left()[1] == 0, "none was left"
    parents._listens_to, parents._serves = PARENTS[0], 8867
    parents._moved("it proved nothing")
    assert reader._left() == ("10.0.0.7", 8867)


def test_given_reader_replaces_both(tmp_path: Path) -> None:
    settings = Settings(store_url=f"sqlite:///{tmp_path}/net.db", sync_url=URL)
    given = Reader()
    sources = Sources(settings, given)
    assert sources.reader is given
    assert sources.store is None
    sources.close()
    with Store(settings) as store:
        assert Sources(settings, store).store is store


def test_plain_channel_of_another_host_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Sources(Settings(sync_url="http://relay.example:8867"), None).close()
    assert "the sync channel http://relay.example:8867/sync is not encrypted" in caplog.text


def test_replica_without_a_database_needs_messages_and_publishers() -> None:
    alone = Settings(sync_url=URL, driver="d")
    with pytest.raises(ConfigError, match="d needs the database, and a replica without store_url has none"):
        check_driver(alone, POLLING)
    with pytest.raises(ConfigError, match="finds no publishers in the directory; set publishers_ips"):
        check_driver(alone, BOUND)
    check_driver(alone, BROKER)
    check_driver(Settings(sync_url=URL, addresses=("tcp://127.0.0.1:1",)), BOUND)
    check_driver(Settings(sync_url=URL, store_url="sqlite:///net.db"), POLLING)


def test_replica_refuses_polling_without_a_database() -> None:
    with pytest.raises(ConfigError, match="db_polling_pubsub_driver needs the database"):
        Replica(Settings(sync_url=URL))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {},
            "store_url is missing; give a SQLAlchemy URL .* or, .* without a database, sync_url .*parents",
        ),
        ({"sync_url": "relay:8867"}, "names neither http nor https"),
        ({"sync_url": URL, "keys": True}, "keys = true needs the publishers' keys, which are in the database"),
        ({"sync_url": URL, "max_sync_bytes": 1}, "max_sync_bytes is 1 but must be"),
    ],
)
def test_contradicting_settings_are_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Settings(**given)
