"""A worker hands over its commits, in every forked process, and never undoes a commit."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import Settings, Store, loader
from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.errors import ClosedError, ConfigError, HandoffRejectedError, TransportError
from pubsub_lib.publisher import worker as module
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.store import administration
from pubsub_lib.testing.checks import in_a_fork
from tests.unit.world import settings

LONG = longest(120.0)


@pytest.fixture
def config(sqlite_url: str, tmp_path: Path) -> Settings:
    return settings(
        sqlite_url,
        service_name="api-1",
        multiproc_driver="zmq_pubsub_multiproc_driver",
        multiproc_socket=str(tmp_path / "hop" / "socket"),
        multiproc_options={"buffer": 5, "when_full": "raise", "linger": 1},
    )


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config.store_url, origin="api-1") as store:
        yield store


@pytest.fixture
def received(config: Settings) -> Iterator[list[Envelope]]:
    """The envelopes that the service receives."""
    received: list[Envelope] = []
    subscriber = loader.load(config.multiproc_driver).subscriber(config.for_multiproc())
    subscriber.initialize(received.append, lambda: None)
    subscriber.register_topic(ALL)
    subscriber.daemonize()
    yield received
    subscriber.close()


def write(store: Store, value: int) -> None:
    with store.transaction() as tx:
        tx.set("a", "1", value, topic="t")


def values(received: list[Envelope]) -> list[Any]:
    return [message.link.changes[0].value for envelope in received for message in envelope.messages]


def numbers(received: list[Envelope]) -> list[tuple[str, int]]:
    """Service and sequence of each message."""
    return [(each.service, each.sequence + index) for each in received for index in range(len(each.messages))]


def test_the_service_receives_each_commit_once_and_in_order(
    config: Settings, store: Store, received: list[Envelope]
) -> None:
    with Worker(config, store) as worker:
        for value in range(3):
            write(store, value)
        assert poll(lambda: len(values(received)) == 3, LONG)  # waiting messages come in one envelope
        assert worker.counters()["sent"] == 3
    assert values(received) == [b"0", b"1", b"2"]
    assert numbers(received) == [("api-1", 1), ("api-1", 2), ("api-1", 3)]


def test_traces_are_handed_over(config: Settings, store: Store, received: list[Envelope]) -> None:
    traces = iter(["00-1-2-01", ""])
    with Worker(config, store, trace=lambda: next(traces)):
        write(store, 0)
        write(store, 1)
        assert poll(lambda: len(values(received)) == 2, LONG)  # one envelope may contain both
    assert [message.link.trace for envelope in received for message in envelope.messages] == ["00-1-2-01", ""]


def test_forked_children_hand_over_with_their_own_uuid(
    config: Settings, store: Store, received: list[Envelope]
) -> None:
    with Worker(config, store) as worker:
        write(store, 0)

        def child() -> None:
            write(store, os.getpid())
            hop: Any = worker._hop()._driver  # what is not connected at the end is dropped
            assert poll(lambda: hop._watch(hop._monitor) or hop._connected, LONG)
            worker.close()

        for _ in range(2):
            in_a_fork(child, LONG)
        write(store, 1)
        assert poll(lambda: len(values(received)) == 4, LONG), received
    assert len({envelope.uuid for envelope in received}) == 3
    assert store.callback_errors == 0


def test_without_a_service_when_full_raise_raises_and_the_commit_is_kept(config: Settings, store: Store) -> None:
    with Worker(config, store) as worker:
        for value in range(5):
            write(store, value)
        for value in (5, 6, 7):
            with pytest.raises(HandoffRejectedError, match=r"buffer of 5 messages .* is full"):
                write(store, value)
        assert store.get("a", "1") == 7
        assert store.callback_errors == 3
        assert worker.counters()["unsent"] == 3


def test_without_a_service_when_full_wait_counts_unsent_commits(config: Settings, store: Store) -> None:
    options = {"buffer": 5, "when_full": "wait", "full_wait": 0.01}
    with Worker(msgspec.structs.replace(config, multiproc_options=options), store) as worker:
        for value in range(8):
            write(store, value)
        assert store.get("a", "1") == 7
        assert store.callback_errors == 3
        assert worker.counters()["unsent"] == 3
        with pytest.raises(TransportError, match="buffer of 5 messages"):
            worker.hand_over(store.read_links(None, 1)[0])


def test_commits_that_no_service_took_are_not_counted_as_sent(config: Settings, store: Store) -> None:
    with Worker(config, store) as worker:
        for value in range(3):
            write(store, value)
    counters = worker.counters()
    assert (counters["sent"], counters["lost"], counters["unsent"]) == (0, 3, 0)
    assert store.get("a", "1") == 2


def test_a_closed_worker_refuses_links_and_the_store_still_works(config: Settings, store: Store) -> None:
    worker = Worker(config, store)
    worker.start()
    worker.close()
    worker.close()
    write(store, 1)
    assert store.callback_errors == 0
    with pytest.raises(ClosedError):
        worker.hand_over(store.read_links(None, 1)[0])


@pytest.mark.parametrize(
    ("changes", "hint"), [({"service_name": ""}, "service_name"), ({"multiproc_driver": ""}, "Publisher")]
)
def test_error_for_missing_settings_names_the_solution(
    changes: dict[str, Any], hint: str, sqlite_url: str, store: Store
) -> None:
    given = {"service_name": "api-1", "multiproc_driver": "memory", **changes}
    with pytest.raises(ConfigError, match=hint):
        Worker(settings(sqlite_url, **given), store)


class Full(Publisher):
    """A full buffer: a sender waits until the test sets ``room``."""

    def __init__(self) -> None:
        self.waits, self.room = threading.Event(), threading.Event()

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        pass

    def send_event(self, envelope: Envelope) -> None:
        self.waits.set()
        assert self.room.wait(LONG)

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass


def test_the_waits_of_a_process_threads_do_not_add_up(config: Settings, store: Store) -> None:
    links: list[Link] = []
    store.on_commit(links.extend)
    write(store, 1)
    full = Full()
    worker = Worker(config, store, full)
    worker.start()
    refused: list[str] = []

    def hand_over() -> None:
        try:
            worker.hand_over(links)
        except TransportError as error:
            refused.append(str(error))

    first, *others = [threading.Thread(target=hand_over) for _ in range(5)]
    first.start()
    assert full.waits.wait(LONG)
    for each in others:
        each.start()
    for each in others:
        each.join(LONG)
        assert not each.is_alive()
    assert first.is_alive()
    full.room.set()
    first.join(LONG)
    assert len(refused) == 4
    assert all("other threads of this process wait for space" in each for each in refused)
    assert worker.counters()["unsent"] == 4
    worker.close()


class Deadlines(Full):
    """Notes the deadline of each envelope. The first one waits for ``room``."""

    full_wait = LONG

    def __init__(self) -> None:
        super().__init__()
        self.deadlines = list[float]()

    def send_event_by(self, envelope: Envelope, deadline: float) -> None:
        self.deadlines.append(deadline)
        self.send_event(envelope)


def test_one_commit_has_one_wait_for_other_threads_and_for_the_room_of_all_its_topics(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[Link] = []
    store.on_commit(links.extend)
    with store.transaction() as tx:
        for topic in ("t", "u"):
            tx.set("a", topic, 1, topic=topic)
    driver = Deadlines()
    worker = Worker(config, store, driver)
    worker.start()
    now, looked = 100.0, threading.Event()

    def monotonic() -> float:
        found = now  # before the test sets a later time
        looked.set()
        return found

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    first, second = [threading.Thread(target=worker.hand_over, args=(links,)) for _ in range(2)]
    first.start()
    assert driver.waits.wait(LONG)
    now = 101.0
    looked.clear()
    second.start()
    assert looked.wait(LONG), "the second one waits for its turn"
    now = 102.0
    driver.room.set()
    for each in (first, second):
        each.join(LONG)
    assert driver.deadlines == [100.0 + LONG] * 2 + [101.0 + LONG] * 2
    worker.close()


def test_rule_15_links_have_the_id_of_the_store_that_committed_them(
    config: Settings, store: Store, received: list[Envelope]
) -> None:
    with Worker(config, store):
        write(store, 1)
        assert poll(lambda: len(received) == 1, LONG)
        before, after = (bytes.fromhex(each) for each in administration.new_id(config.store_url))
        write(store, 2)
        assert poll(lambda: len(received) == 2, LONG)
    assert [each.store_id for each in received] == [before, after]
