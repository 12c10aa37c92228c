"""A program that publishes what it commits: numbering, hellos, and failures that must not undo a commit."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pubsub_lib import Publisher, Settings, Store, loader
from pubsub_lib.api import Publisher as Driver
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.errors import ClosedError, ConfigError, StoreUnavailable, TransportError, UsageError
from pubsub_lib.journal.writer import JournalSettings
from pubsub_lib.publisher import publisher as module
from pubsub_lib.store import OnCommit
from tests.unit.world import settings

LONG = 20.0


class Ear:
    """A real subscriber that keeps what it hears."""

    def __init__(self, config: Settings, topics: Sequence[str]) -> None:
        self.heard: list[Envelope] = []
        self._news = threading.Condition()
        self.subscriber = loader.load(config.driver).subscriber(config.for_driver())
        self.subscriber.initialize(self._hear, lambda: None)
        for topic in topics:
            self.subscriber.register_topic(topic)
        self.subscriber.daemonize()

    def _hear(self, envelope: Envelope) -> None:
        with self._news:
            self.heard.append(envelope)
            self._news.notify_all()

    def wait(self, found: Callable[[Envelope], bool]) -> Envelope:
        """The first envelope for which ``found`` is true."""
        self.wait_for(lambda: any(map(found, self.heard)))
        return next(filter(found, self.heard))

    def wait_for(self, true: Callable[[], bool]) -> None:
        """Until it is."""
        with self._news:
            assert self._news.wait_for(true, LONG), self.heard


def broadcast(envelope: Envelope) -> bool:
    """A hello to everybody."""
    return envelope.hello is not None and not envelope.hello.nonce and not envelope.hello.goodbye


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


def test_rule_06_hello_at_start_when_idle_when_asked_and_at_the_end(config: Settings, store: Store, ear: Ear) -> None:
    write(store, 1)
    with Publisher(config, store):
        start = ear.wait(broadcast)
        assert start.hello is not None
        assert (start.topic, start.hello.heads, start.hello.store) == (ALL, {}, store.read_heads(()).store)
        ear.wait(lambda envelope: broadcast(envelope) and envelope.hello is not start.hello)  # idle since
        ear.subscriber.request_hello("n1", ["t"])
        own = ear.wait(lambda envelope: envelope.hello is not None and envelope.hello.nonce == "n1")
        assert own.hello is not None
        assert own.hello.age <= config.timing.reading_age
        assert own.hello.heads["t"].point == own.hello.store
    ear.wait(lambda envelope: envelope.hello is not None and envelope.hello.goodbye)


def test_rule_06_who_follows_one_topic_hears_the_hello_of_a_publisher_that_never_sent_on_it(
    config: Settings, store: Store
) -> None:
    ear = Ear(config, ["another"])
    with Publisher(config, store):
        ear.wait(broadcast)
    ear.subscriber.close()


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
        ear.wait(broadcast)
    assert moody.failures == []


def test_an_idle_store_is_seldom_read_whole(config: Settings, store: Store, ear: Ear) -> None:
    write(store, 1)
    moody = Moody(store, failures=[])
    begun = time.monotonic()
    with Publisher(config, moody):
        for number in range(5):
            seen = len(ear.heard)
            ear.wait_for(lambda seen=seen: any(map(broadcast, ear.heard[seen:])))  # type: ignore[misc]
            ear.subscriber.request_hello(f"n{number}", ["t"])
            ear.wait(lambda each, own=f"n{number}": each.hello is not None and each.hello.nonce == own)  # type: ignore[misc]
    rounds = (time.monotonic() - begun) // config.timing.stale_after
    assert moody.asked.count([ALL]) <= 1 + rounds
    assert len(moody.asked) > 2 * moody.asked.count([ALL])


class Stalling(Driver):
    """A transport that takes what ``holds`` names only when it is let, and then refuses it."""

    def __init__(self, holds: Callable[[Envelope], bool]) -> None:
        self._holds = holds
        self.on_hello_request: Callable[[HelloRequest], None] = lambda ask: None
        self.tried: list[Envelope] = []
        self.sent: list[Envelope] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def initialize(self, on_hello_request: Any, on_connected: Any) -> None:
        self.on_hello_request = on_hello_request

    def send_event(self, envelope: Envelope) -> None:
        if not self._holds(envelope):
            self.sent.append(envelope)
            return
        self.tried.append(envelope)
        self.entered.release()
        assert self.go.wait(LONG)
        raise TransportError("the queue is full")

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self.go.set()


def test_a_commit_never_waits_for_a_hello(config: Settings, store: Store) -> None:
    with store.transaction() as tx:
        for number in range(1000):
            tx.set("b", str(number), 0, topic=f"t{number}")
    driver = Stalling(lambda envelope: envelope.hello is not None)
    with Publisher(config, store, driver) as publisher:
        assert driver.entered.acquire(timeout=LONG)  # the start hello is on its way, and nothing takes it
        asking = threading.Thread(target=driver.on_hello_request, args=(HelloRequest("n1", ("t1",)),))
        asking.start()
        writing = threading.Thread(target=write, args=(store, 1))
        writing.start()
        writing.join(LONG)
        assert [each.topic for each in driver.sent] == ["t"]
        assert not driver.go.is_set()
        driver.go.set()
        asking.join(LONG)
        assert publisher.counters()["unsent"] >= 1


def test_the_first_refusal_ends_the_burst(config: Settings, store: Store) -> None:
    driver = Stalling(lambda envelope: envelope.hello is not None)
    slow = Held(store)
    publisher = Publisher(config, slow, driver)
    publisher.start()
    assert slow.entered.wait(LONG)
    for number in range(50):
        driver.on_hello_request(HelloRequest(f"n{number}", ("t",)))  # they all wait for this reading
    driver.go.set()
    slow.go.set()
    assert driver.entered.acquire(timeout=LONG)
    while publisher.counters()["unsent"] < 50:
        assert driver.entered.acquire(timeout=LONG)  # what comes later is tried again
    answers = [each for each in driver.tried if each.hello is not None and each.hello.nonce]
    assert len(answers) == 1
    publisher.close()


def test_a_commit_waits_for_its_turn_within_a_bound(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TURN", 0.05)
    driver = Stalling(lambda envelope: bool(envelope.messages) and envelope.messages[0].link.topic == "slow")
    publisher = Publisher(config, store, driver)
    publisher.start()
    first = threading.Thread(target=write, args=(store, 1, "slow"))
    first.start()
    assert driver.entered.acquire(timeout=LONG)  # the first commit sends, and nothing takes it
    with pytest.raises(TransportError, match="other commits of this program have been sending for"):
        publisher.publish(_links(store))
    write(store, 2)  # what its writer sees: the commit stands
    assert store.get("a", "1") == 2
    driver.go.set()
    first.join(LONG)
    publisher.close()


def test_a_commit_of_many_messages_stops_when_its_time_is_over(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TURN", 0.0)
    driver = Stalling(lambda envelope: False)
    with Publisher(config, store, driver) as publisher:
        with store.transaction() as tx:
            for topic in "abc":
                tx.set("a", topic, 0, topic=topic)
        assert store.callback_errors == 1
        with pytest.raises(TransportError, match="the rest of it is not sent"):
            publisher.publish(_links(store))
    assert [each.topic for each in driver.sent if each.messages] == ["a", "a"], "the first always gets its chance"


class Held:
    """A real store whose readings of heads wait until they are let."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.entered = threading.Event()
        self.go = threading.Event()

    def read_heads(self, topics: Any) -> Any:
        self.entered.set()
        assert self.go.wait(LONG)
        return self._store.read_heads(topics)

    def on_commit(self, callback: Any) -> Any:
        return self._store.on_commit(callback)


class Refusing(Driver):
    """A publisher that cannot bind."""

    closed = False

    def initialize(self, on_hello_request: Any, on_connected: Any) -> None:
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
        self.asked: list[Any] = []

    def read_heads(self, topics: Any) -> Any:
        self.asked.append(topics)
        if self.failures:
            raise self.failures.pop(0)
        return self._store.read_heads(topics)

    def on_commit(self, callback: Any) -> Any:
        return self._store.on_commit(callback)


def _links(store: Store) -> list[Link]:
    links, _head, _complete = store.read_links(None, 10)
    return links
