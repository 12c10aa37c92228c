"""A program that publishes what it commits: numbering, hellos, and failures that must not undo a commit."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pubsub_lib import Publisher, Settings, Store, loader
from pubsub_lib.api import Publisher as Driver
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.errors import ClosedError, ConfigError, StoreUnavailable, TransportError, UsageError
from pubsub_lib.journal.writer import JournalSettings
from pubsub_lib.store import OnCommit
from tests.unit.runtime.world import settings

LONG = 120.0


class Ear:
    """A real subscriber that keeps what it hears."""

    def __init__(self, config: Settings, topics: Sequence[str]) -> None:
        self._heard: list[Envelope] = []
        self._news = threading.Condition()
        self.subscriber = loader.load(config.driver).subscriber(config.for_driver())
        self.subscriber.initialize(self._hear, lambda: None)
        for topic in topics:
            self.subscriber.register_topic(topic)
        self.subscriber.daemonize()

    def _hear(self, envelope: Envelope) -> None:
        with self._news:
            self._heard.append(envelope)
            self._news.notify_all()

    def wait(self, found: Callable[[Envelope], bool]) -> Envelope:
        """The first envelope for which ``found`` is true."""
        with self._news:
            assert self._news.wait_for(lambda: any(map(found, self._heard)), LONG), self._heard
            return next(filter(found, self._heard))


@pytest.fixture
def ear(config: Settings) -> Iterator[Ear]:
    ear = Ear(config, [ALL])
    yield ear
    ear.subscriber.close()


def write(store: Store, value: int, topic: str = "t") -> None:
    with store.transaction() as tx:
        tx.set("a", "1", value, topic=topic)


def test_commits_are_numbered_per_topic_and_sent(config: Settings, store: Store, ear: Ear) -> None:
    with Publisher(config, store) as publisher:
        for value in range(3):
            write(store, value)
        last = ear.wait(lambda envelope: envelope.sequence == 3)
    assert (last.service, last.uuid, last.topic) == ("writer", publisher.uuid, "t")
    assert last.messages[0].link.changes[0].value == b"2"
    assert publisher.counters()["sent"] >= 3


def test_rule_06_hello_at_start_on_idle_topics_when_asked_and_at_the_end(
    config: Settings, store: Store, ear: Ear
) -> None:
    write(store, 1)
    with Publisher(config, store):
        start = ear.wait(lambda envelope: envelope.hello is not None and envelope.topic == "t")
        assert start.hello is not None
        assert start.hello.heads["t"].point == start.hello.store
        ear.wait(lambda envelope: envelope.hello is not None and envelope.hello is not start.hello)  # idle since
        ear.subscriber.request_hello("n1", ["t"])
        own = ear.wait(lambda envelope: envelope.hello is not None and envelope.hello.nonce == "n1")
        assert own.hello is not None
        assert own.hello.age <= config.timing.reading_age
    ear.wait(lambda envelope: envelope.hello is not None and envelope.hello.goodbye)


def test_a_new_start_is_a_new_uuid(config: Settings, store: Store) -> None:
    assert Publisher(config, store).uuid != Publisher(config, store).uuid


def test_a_failing_driver_does_not_undo_the_commit(config: Settings, store: Store) -> None:
    publisher = Publisher(config, store)
    publisher.start()
    publisher._driver.close()
    write(store, 7)
    assert store.get("a", "1") == 7
    with pytest.raises(TransportError):
        publisher.publish(_links(store))
    publisher.close()


def test_after_close_it_refuses_and_the_store_goes_on(config: Settings, store: Store) -> None:
    publisher = Publisher(config, store)
    publisher.start()
    publisher.close()
    publisher.close()
    write(store, 8)
    assert store.callback_errors == 0
    with pytest.raises(ClosedError):
        publisher.publish(_links(store))


def test_it_needs_a_name(sqlite_url: str, store: Store) -> None:
    with pytest.raises(ConfigError, match="service_name"):
        Publisher(settings(sqlite_url, service=""), store)


def test_its_thread_survives_a_store_that_does_not_answer(config: Settings, store: Store, ear: Ear) -> None:
    write(store, 1)
    moody = Moody(store, failures=[StoreUnavailable("out"), RuntimeError("a bug")])
    with Publisher(config, moody):
        ear.wait(lambda envelope: envelope.hello is not None and "t" in envelope.hello.heads)
    assert moody.failures == []


class Refusing(Driver):
    """A publisher that cannot bind."""

    closed = False

    def initialize(self, on_ask: Any, on_connected: Any) -> None:
        raise TransportError("the port is in use")

    def send_event(self, envelope: Envelope) -> None:
        raise AssertionError("nobody can hear a goodbye of what never began")

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self.closed = True


def test_a_start_that_fails_releases_everything(config: Settings, store: Store, tmp_path: Path) -> None:
    folder = str(tmp_path / "journal")
    journaled = msgspec.structs.replace(config, journal=JournalSettings(folder=folder))
    driver = Refusing()
    publisher = Publisher(journaled, store, driver)
    with pytest.raises(TransportError, match="the port is in use"), publisher:
        pass
    assert driver.closed
    assert not [each for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each).startswith(folder)]
    assert publisher.counters()["unsent"] == 0


def test_a_close_during_the_start_leaves_nobody_listening(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(config, store)
    listen = store.on_commit

    def close_meanwhile(callback: OnCommit) -> Callable[[], None]:
        publisher.close()  # what another thread may do at this moment
        return listen(callback)

    monkeypatch.setattr(store, "on_commit", close_meanwhile)
    with pytest.raises(ClosedError, match="closed while it started"):
        publisher.start()
    write(store, 1)
    assert store.callback_errors == 0


def test_a_second_start_is_refused_and_ends_nothing(config: Settings, store: Store, ear: Ear) -> None:
    with Publisher(config, store) as publisher:
        with pytest.raises(UsageError, match="started already"):
            publisher.start()
        write(store, 1)
        ear.wait(lambda envelope: envelope.sequence == 1)


class Moody:
    """A real store whose readings of heads fail at first."""

    def __init__(self, store: Store, failures: list[Exception]) -> None:
        self._store = store
        self.failures = failures

    def read_heads(self, topics: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return self._store.read_heads(topics)

    def on_commit(self, callback: Any) -> Any:
        return self._store.on_commit(callback)


def _links(store: Store) -> list[Link]:
    links, _head, _complete = store.read_links(None, 10)
    return links
