"""The relay's threads: questions wait for a bounded time, and hello requests of any step are sent above."""

import random
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from _processes import poll

from pubsub_lib import Publisher, Settings, Store, loader
from pubsub_lib.api import Subscriber
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import Delta, Full, Incomplete, Point, SyncAnswer, Want
from pubsub_lib.core.relaying import Relay
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.relay.engine import SETTLING, SLACK, RelayEngine
from pubsub_lib.replica.scheduling import Threads
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.sync.question import SyncQuestion
from tests.unit.world import LONG, settings

UUID = "cd" * 16


class Rig:
    """An engine on the bus of the settings, with what it sends and asks."""

    def __init__(self, config: Settings, store: Store, older: SyncReader | None = None) -> None:
        self.sent: list[Envelope] = []
        self.asked: list[tuple[str, ...]] = []
        subscriber = loader.load("memory").subscriber(config.for_driver())
        self._request, rig = subscriber.request_hello, self

        def request_hello(nonce: str, topics: Collection[str]) -> None:
            rig.asked.append(tuple(topics))
            rig._request(nonce, topics)

        subscriber.request_hello = request_hello  # type: ignore[method-assign]
        self.engine = engine(config, self.sent, store, subscriber, older)


def engine(
    config: Settings, sent: list[Envelope], store: Store, subscriber: Subscriber, older: SyncReader | None = None
) -> RelayEngine:
    return RelayEngine(
        config, UUID, sent.append, lambda service, uuid: None, store, subscriber, Threads(), random.Random(0),
        older=older,
    )  # fmt: skip


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config) as store, Publisher(config, store), store.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
        yield store


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    return settings(sqlite_url, service_name="relay-1")


@contextmanager
def started(made: Rig) -> Iterator[Rig]:
    """Start the engine, and close it at the end."""
    made.engine.start(["t"])
    try:
        assert poll(lambda: made.engine.core.relay.contents.serves("t"), LONG)
        yield made
    finally:
        made.engine.close(0.0)


@pytest.fixture
def rig(config: Settings, store: Store) -> Iterator[Rig]:
    with started(Rig(config, store)) as made:
        yield made


def test_step_of_any_thread_sends_the_hello_requests_above(rig: Rig) -> None:
    assert poll(lambda: any(each.hello is not None for each in rig.sent), LONG), "the first hello"
    rig.engine.on_connected_below()
    before = len(rig.asked)
    rig.engine.on_hello_request(HelloRequest("ab" * 12, ("t",)))
    assert poll(lambda: "ab" * 12 in [each.hello.nonce for each in rig.sent if each.hello is not None], LONG)
    answer = rig.engine.answer(SyncQuestion({"t": Want()}))
    assert answer is not None
    assert len(rig.asked) > before, "a full answer needs a proof from after the question"


def test_answer_that_does_not_come_in_time_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relay, "_ready", lambda *_: False)
    began = rig.engine.now()
    assert rig.engine.answer(SyncQuestion({"t": Want()})) is None
    assert rig.engine.now() - began >= SLACK
    assert rig.engine.core.waiting == 0


def test_delta_just_after_the_start_waits_until_the_replica_has_connected(rig: Rig) -> None:
    question = SyncQuestion({"t": Want(rig.engine.read(lambda state: state.tracker.chain("t").known))}, nonce="ab" * 12)
    rig.engine.core.relay.settled_at = rig.engine.now() + 2 * LONG
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.engine.answer, question)
        assert poll(lambda: rig.engine.core.waiting == 1, LONG)
        rig.engine.on_hello_request(HelloRequest("cd" * 12, ("t",)))
        assert rig.engine.core.waiting == 1
        rig.engine.on_hello_request(HelloRequest("ab" * 12, ("t",)))
        assert isinstance(part_of(answer.result(LONG)), Delta)


def test_delta_just_after_the_start_waits_for_a_bounded_time(rig: Rig) -> None:
    known = rig.engine.read(lambda state: state.tracker.chain("t").known)
    until = rig.engine.core.relay.settled_at
    assert until <= rig.engine.now() + SETTLING
    assert isinstance(part_of(rig.engine.answer(SyncQuestion({"t": Want(known)}, nonce="ab" * 12))), Delta)
    assert rig.engine.now() >= until


class Changing:
    """A reader whose database may be out of reach."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reachable = True
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[Mapping[str, Want]] = []

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        self.asked.append(wants)
        assert self.gate.wait(LONG)
        if not self.reachable:
            raise StoreUnavailable("the database is out of reach")
        return self._store.read_sync(wants)


def written(store: Store, *values: int) -> Point:
    """Write these values; returns the point before them."""
    known = store.read_heads(["t"]).topics["t"].point
    for value in values:
        with store.transaction() as tx:
            tx.set("a", "1", value, topic="t")
    return known


def part_of(answer: SyncAnswer | None) -> Delta | Incomplete | Full:
    assert answer is not None
    return answer.chains["t"]


def test_point_that_never_was_costs_one_reading_of_older_links(config: Settings, store: Store) -> None:
    written(store, 2, 3, 4)
    older = Changing(store)
    with started(Rig(config, store, older)) as rig:
        for nonce in range(1, 6):
            answer = rig.engine.answer(SyncQuestion({"t": Want(after=Point(1, nonce))}))
            assert isinstance(part_of(answer), Incomplete)
        assert len(older.asked) == 1


def test_question_waits_for_another_ones_reading_of_older_links_for_a_bounded_time(
    config: Settings, store: Store
) -> None:
    question = SyncQuestion({"t": Want(after=written(store, 2))})
    older = Changing(store)
    made = Rig(config, store, older)
    made.engine._older_wait = 0.0
    with started(made) as rig, ThreadPoolExecutor(1) as pool:
        older.gate.clear()
        try:
            first = pool.submit(rig.engine.answer, question)
            assert poll(lambda: len(older.asked) == 1, LONG)
            assert isinstance(part_of(rig.engine.answer(question)), Incomplete)
        finally:
            older.gate.set()
        assert isinstance(part_of(first.result()), Delta)


def test_links_from_before_the_start_are_read_once_for_all_replicas_below(config: Settings, store: Store) -> None:
    question = SyncQuestion({"t": Want(after=written(store, 2, 3, 4))})
    older = Changing(store)
    with started(Rig(config, store, older)) as rig:
        older.reachable = False
        assert isinstance(part_of(rig.engine.answer(question)), Incomplete), "the replica reads all objects"
        older.reachable = True
        assert isinstance(part_of(rig.engine.answer(question)), Incomplete), "it is not read again for a while"
        rig.engine._older_again.clear()
        older.gate.clear()
        with ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(rig.engine.answer, question) for _ in range(3)]
            assert poll(lambda: rig.engine.core.counts["answered"] == 5, LONG), "all of them lack links"
            older.gate.set()
        for each in answers:
            part = part_of(each.result())
            assert isinstance(part, Delta)
            assert [link.changes[0].value for link in part.links] == [b"2", b"3", b"4"]
        assert older.asked == [question.wants] * 2
        assert rig.engine.core.counts["joined"] == 1


def test_after_the_goodbye_questions_are_refused_at_once(rig: Rig) -> None:
    rig.engine.send_goodbye()
    assert rig.engine.answer(SyncQuestion({"t": Want()})) is None
    last = rig.sent[-1].hello
    assert last is not None
    assert last.goodbye


def test_directory_reaches_the_relay(rig: Rig, store: Store) -> None:
    rig.engine.on_directory(["ee" * 16])
    with store.transaction() as tx:
        tx.set("a", "2", 2, topic="t")
    assert poll(lambda: rig.engine.read(lambda state: state.unleased.messages) == 1, LONG)
    publisher = next(iter(rig.engine.read(lambda state: list(state.leased._unknown))))
    rig.engine.on_directory([publisher])
    links = [message.link for each in rig.sent for message in each.messages]
    assert [change.key for link in links for change in link.changes][-1] == "2"
