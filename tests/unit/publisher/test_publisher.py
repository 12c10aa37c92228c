"""A program that publishes its commits: numbering, hellos, and failures that must not undo a commit."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import Publisher, Settings, Store, loader
from pubsub_lib.api import Publisher as Driver
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.errors import ClosedError, ConfigError, PubSubError, StoreUnavailable, TransportError, UsageError
from pubsub_lib.journal.settings import JournalSettings
from pubsub_lib.latency import NO_LATENCIES
from pubsub_lib.publisher import publisher as module
from pubsub_lib.store import OnCommit, administration
from tests.unit.store.test_fork_safety import child
from tests.unit.world import settings

LONG = longest(20.0)



def _open_in(folder: str) -> list[Path]:
    """This process's open descriptors in the folder. The journal's thread reads the folder once, when it starts."""
    return [each for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each).startswith(folder)]


class Listener:
    """A real subscriber that records the received envelopes."""

    def __init__(self, config: Settings, topics: Sequence[str]) -> None:
        self.received: list[Envelope] = []
        self._news = threading.Condition()
        self.subscriber = loader.load(config.driver).subscriber(config.for_driver())
        self.subscriber.initialize(self._receive, lambda: None)
        for topic in topics:
            self.subscriber.register_topic(topic)
        self.subscriber.daemonize()

    def _receive(self, envelope: Envelope) -> None:
        with self._news:
            self.received.append(envelope)
            self._news.notify_all()

    def wait(self, found: Callable[[Envelope], bool]) -> Envelope:
        """The first envelope for which ``found`` is true."""
        self.wait_for(lambda: any(map(found, self.received)))
        return next(filter(found, self.received))

    def wait_for(self, true: Callable[[], bool]) -> None:
        """Wait until ``true`` returns True."""
        with self._news:
            assert self._news.wait_for(true, LONG), self.received


def broadcast(envelope: Envelope) -> bool:
    """Whether this is a hello to all subscribers."""
    return envelope.hello is not None and not envelope.hello.nonce and not envelope.hello.goodbye


@pytest.fixture
def listener(config: Settings) -> Iterator[Listener]:
    listener = Listener(config, [ALL])
    yield listener
    listener.subscriber.close()


def write(store: Store, value: int, topic: str = "t") -> None:
    with store.transaction() as tx:
        tx.set("a", "1", value, topic=topic)


def test_commits_are_numbered_per_topic_and_sent(config: Settings, store: Store, listener: Listener) -> None:
    with Publisher(config, store) as publisher:
        for value in range(3):
            write(store, value)
        last = listener.wait(lambda envelope: envelope.sequence == 3)
    assert (last.service, last.uuid, last.topic) == ("writer", publisher.uuid, "t")
    assert last.messages[0].link.changes[0].value == b"2"
    assert publisher.counters()["sent"] >= 3


def test_accepted_link_counts_the_time_since_its_commit(
    config: Settings, store: Store, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEND_TIMEOUT", LONG)
    with Publisher(config, store, measured=True) as publisher:
        assert publisher.commit_to_sent() == NO_LATENCIES
        with store.transaction() as tx:
            tx.set("a", "1", 1, topic="t")
            tx.set("a", "2", 2, topic="u")
        taken = publisher.commit_to_sent()
        assert (taken.count, taken.negative) == (2, 0)
        assert 0.0 <= taken.total < LONG
        with store.transaction() as tx:  # one link in many messages: counted when the last one is accepted
            for number in range(8):
                tx.set("b", str(number), "x" * 200_000, topic="t")
        listener.wait(lambda envelope: any(each.parts > 1 for each in envelope.messages))
        assert publisher.commit_to_sent().count == 3
        publisher._driver.close()
        write(store, 7)  # the driver refuses it
        assert publisher.commit_to_sent().count == 3


def test_progress_is_none_while_the_lock_is_held(config: Settings, store: Store, listener: Listener) -> None:
    with Publisher(config, store) as publisher:
        write(store, 1)
        listener.wait(lambda envelope: envelope.sequence == 1)
        progress = publisher.progress(LONG)
        assert progress is not None
        assert progress.sequences == {"t": 1}
        with publisher._lock:
            assert publisher.progress(0.01) is None
        assert publisher.progress(LONG) is not None


def test_rule_06_publisher_sends_hello_at_start_when_idle_on_request_and_at_the_end(
    config: Settings, store: Store, listener: Listener
) -> None:
    write(store, 1)
    with Publisher(config, store):
        start = listener.wait(broadcast)
        assert start.hello is not None
        assert (start.topic, start.hello.heads, start.hello.store) == (ALL, {}, store.read_heads(()).store)
        listener.wait(lambda envelope: broadcast(envelope) and envelope.hello is not start.hello)  # idle since
        asked = time.monotonic()
        listener.subscriber.request_hello("n1", ["t"])
        reply = listener.wait(lambda envelope: envelope.hello is not None and envelope.hello.nonce == "n1")
        took = time.monotonic() - asked
        assert reply.hello is not None
        assert reply.hello.age <= config.timing.reading_age + took, "the reading was fresh at the request, or is later"
        assert reply.hello.heads["t"].point == reply.hello.store
    listener.wait(lambda envelope: envelope.hello is not None and envelope.hello.goodbye)


def test_rule_06_a_subscriber_of_one_topic_receives_hellos_of_every_publisher(config: Settings, store: Store) -> None:
    listener = Listener(config, ["another"])
    with Publisher(config, store):
        listener.wait(broadcast)
    listener.subscriber.close()


def test_rule_15_every_message_has_the_id_of_the_store(config: Settings, store: Store, listener: Listener) -> None:
    before = store.store_id
    with Publisher(config, store):
        assert listener.wait(broadcast).store_id == before
        write(store, 1)
        assert listener.wait(lambda envelope: envelope.sequence == 1).store_id == before
        after = bytes.fromhex(administration.new_id(config.store_url)[1])
        listener.wait(lambda envelope: broadcast(envelope) and envelope.store_id == after)
        administration.new_id(config.store_url)
        write(store, 2)
        assert listener.wait(lambda envelope: envelope.sequence == 2).store_id == store.store_id not in (before, after)
    goodbye = listener.wait(lambda envelope: envelope.hello is not None and envelope.hello.goodbye)
    assert goodbye.store_id == store.store_id


def test_each_publisher_has_a_new_uuid(config: Settings, store: Store) -> None:
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


def test_a_closed_publisher_refuses_links_and_the_store_still_works(config: Settings, store: Store) -> None:
    publisher = Publisher(config, store)
    publisher.start()
    publisher.close()
    publisher.close()
    write(store, 8)
    assert store.callback_errors == 0
    with pytest.raises(ClosedError):
        publisher.publish(_links(store))


def test_publisher_without_a_service_name_is_refused(sqlite_url: str, store: Store) -> None:
    with pytest.raises(ConfigError, match="service_name"):
        Publisher(settings(sqlite_url, service_name=""), store)


def test_the_hello_thread_survives_errors_of_the_store(config: Settings, store: Store, listener: Listener) -> None:
    write(store, 1)
    moody = Moody(store, failures=[StoreUnavailable("out"), RuntimeError("a bug")])
    with Publisher(config, moody):
        listener.wait(broadcast)
    assert moody.failures == []


@pytest.mark.parametrize("error", [ConfigError("password authentication failed"), ClosedError("store closed")])
def test_refused_reading_of_heads_is_logged_as_the_stores_error(
    error: PubSubError, config: Settings, store: Store, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    write(store, 1)
    with caplog.at_level(logging.WARNING), Publisher(config, Moody(store, failures=[error])):
        listener.wait(broadcast)
    assert [(each.levelname, str(error) in each.getMessage()) for each in caplog.records] == [("WARNING", True)]


def test_all_heads_of_an_idle_store_are_read_rarely(config: Settings, store: Store, listener: Listener) -> None:
    write(store, 1)
    moody = Moody(store, failures=[])
    begun = time.monotonic()
    with Publisher(config, moody):
        for number in range(5):
            seen = len(listener.received)
            listener.wait_for(lambda seen=seen: any(map(broadcast, listener.received[seen:])))  # type: ignore[misc]
            listener.subscriber.request_hello(f"n{number}", ["t"])
            listener.wait(lambda each, nonce=f"n{number}": each.hello is not None and each.hello.nonce == nonce)  # type: ignore[misc]
    rounds = (time.monotonic() - begun) // config.timing.stale_after
    assert moody.asked.count([ALL]) <= 1 + rounds
    assert len(moody.asked) > 2 * moody.asked.count([ALL])


class Stalling(Driver):
    """A transport that blocks on the envelopes that ``holds`` selects until ``go`` is set, and then refuses them."""

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
        assert driver.entered.acquire(timeout=LONG)  # the first hello is being sent, and the transport blocks
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


def test_after_a_refused_hello_the_other_due_hellos_are_not_sent(config: Settings, store: Store) -> None:
    driver = Stalling(lambda envelope: envelope.hello is not None)
    slow = Held(store)
    publisher = Publisher(config, slow, driver)
    publisher.start()
    assert slow.entered.wait(LONG)
    for number in range(50):
        driver.on_hello_request(HelloRequest(f"n{number}", ("t",)))  # all of them wait for this reading
    driver.go.set()
    slow.go.set()
    assert driver.entered.acquire(timeout=LONG)
    while publisher.counters()["unsent"] < 50:
        assert driver.entered.acquire(timeout=LONG)  # later hellos are sent again
    answers = [each for each in driver.tried if each.hello is not None and each.hello.nonce]
    assert len(answers) == 1
    publisher.close()


def test_a_commit_waits_for_other_commits_within_a_bound(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEND_TIMEOUT", 0.05)
    driver = Stalling(lambda envelope: bool(envelope.messages) and envelope.messages[0].link.topic == "slow")
    # No hello is sent meanwhile: its thread could hold the lock for longer than a commit waits.
    rare = msgspec.structs.replace(config, timing=msgspec.structs.replace(config.timing, max_idle_time=1000.0))
    publisher = Publisher(rare, store, driver)
    publisher.start()
    assert poll(lambda: bool(driver.sent) and not publisher._loop.running_for(time.monotonic()), LONG), "a hello"
    first = threading.Thread(target=write, args=(store, 1, "slow"))
    first.start()
    assert driver.entered.acquire(timeout=LONG)  # the first commit is being sent, and the transport blocks
    with pytest.raises(TransportError, match="other commits of this program have been sending for"):
        publisher.publish(_links(store))
    write(store, 2)  # the writer gets no error: the commit is valid
    assert store.get("a", "1") == 2
    driver.go.set()
    first.join(LONG)
    publisher.close()


def test_sending_a_commit_of_many_messages_stops_at_its_time_limit(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEND_TIMEOUT", 0.0)
    driver = Stalling(lambda envelope: False)
    # No hello is sent meanwhile: without a time to wait, a commit does not get the lock while a hello's thread has it.
    rare = msgspec.structs.replace(config, timing=msgspec.structs.replace(config.timing, max_idle_time=1000.0))
    with Publisher(rare, store, driver) as publisher:
        assert poll(lambda: bool(driver.sent) and not publisher._loop.running_for(time.monotonic()), LONG), "a hello"
        with store.transaction() as tx:
            for topic in "abc":
                tx.set("a", topic, 0, topic=topic)
        assert store.callback_errors == 1
        with pytest.raises(TransportError, match="the rest of it is not sent"):
            publisher.publish(_links(store))
    assert [each.topic for each in driver.sent if each.messages] == ["a", "a"], "the first message is always sent"


class Held:
    """A real store whose readings of heads wait until ``go`` is set."""

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

    @property
    def store_id(self) -> bytes:
        return self._store.store_id


class Refusing(Driver):
    """A publisher that cannot bind."""

    closed = False

    def initialize(self, on_hello_request: Any, on_connected: Any) -> None:
        raise TransportError("the port is in use")

    def send_event(self, envelope: Envelope) -> None:
        raise AssertionError("a publisher that did not start must not send a goodbye")

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
    assert poll(lambda: not _open_in(folder), LONG)
    assert publisher.counters()["unsent"] == 0


def test_a_close_during_the_start_leaves_no_callback(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(config, store)
    listen = store.on_commit

    def close_meanwhile(callback: OnCommit) -> Callable[[], None]:
        publisher.close()  # another thread may do this at this moment
        return listen(callback)

    monkeypatch.setattr(store, "on_commit", close_meanwhile)
    with pytest.raises(ClosedError, match="closed while it started"):
        publisher.start()
    write(store, 1)
    assert store.callback_errors == 0


def test_a_close_that_is_interrupted_releases_everything(
    config: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "journal")
    driver = loader.load_publisher(config)
    publisher = Publisher(msgspec.structs.replace(config, journal=JournalSettings(folder=folder)), store, driver)
    publisher.start()
    send = driver.send_event
    interrupted: list[Envelope] = []

    def interrupt(envelope: Envelope) -> None:
        if envelope.hello is not None and envelope.hello.goodbye:
            interrupted.append(envelope)
            raise KeyboardInterrupt
        send(envelope)

    monkeypatch.setattr(driver, "send_event", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publisher.close()
    with pytest.raises(TransportError, match="closed"):
        send(*interrupted)
    assert poll(lambda: not publisher._loop._thread.is_alive(), LONG)
    assert poll(lambda: not _open_in(folder), LONG)


def test_a_second_start_is_refused_and_the_publisher_still_works(
    config: Settings, store: Store, listener: Listener
) -> None:
    with Publisher(config, store) as publisher:
        with pytest.raises(UsageError, match="started already"):
            publisher.start()
        write(store, 1)
        listener.wait(lambda envelope: envelope.sequence == 1)


def test_a_publisher_made_before_a_fork_is_not_started_in_the_child(
    config: Settings, store: Store, listener: Listener
) -> None:
    publisher = Publisher(config, store)

    def refused() -> None:
        with pytest.raises(ClosedError, match="before the fork"):
            publisher.start()
        publisher.close()
        assert not publisher._loop._thread.is_alive()

    assert child(refused) == 0
    with publisher:
        write(store, 1)
        listener.wait(lambda envelope: envelope.sequence == 1)


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

    @property
    def store_id(self) -> bytes:
        return self._store.store_id


def _links(store: Store) -> list[Link]:
    links, _head, _complete = store.read_links(None, 10)
    return links
