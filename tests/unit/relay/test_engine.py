"""The relay's threads: questions wait for a bounded time, hello requests of any step are sent above, and the objects of
an answer are those of one point, although links change them while they are read.
"""

import random
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from _processes import poll

from pubsub_lib import Publisher, Settings, Store, loader
from pubsub_lib.api import Subscriber
from pubsub_lib.core import topic_copy
from pubsub_lib.core.contents import contents_of
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import Delta, Full, Incomplete, Point, SyncAnswer, Want
from pubsub_lib.core.relaying import Relay
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.relay import engine as engine_module
from pubsub_lib.relay.engine import SETTLING, SLACK, RelayEngine
from pubsub_lib.replica.scheduling import Threads
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.sync import snapshots
from pubsub_lib.sync.packing import PackedRecords
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.sync.snapshots import SnapshotCache, answer_of
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
        self.engine._older_pause = LONG  # else the pause may be over when a busy machine asks again


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
def started(made: Rig, *, patient: bool = True) -> Iterator[Rig]:
    """Start the engine, and close it at the end. ``patient``: an answer may be late, as on a busy machine."""
    if patient:
        made.engine._answer_wait = LONG
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


def test_answer_that_does_not_come_in_time_is_given_up(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(Rig(config, store), patient=False) as rig:
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


def test_older_links_are_read_at_once_from_another_parent(config: Settings, store: Store) -> None:
    question = SyncQuestion({"t": Want(after=written(store, 2, 3, 4))})
    older = Changing(store)
    with started(Rig(config, store, older)) as rig:
        older.reachable = False
        assert isinstance(part_of(rig.engine.answer(question)), Incomplete)
        older.reachable = True
        rig.engine.parent_changed(reads_from_it=False)
        assert isinstance(part_of(rig.engine.answer(question)), Incomplete), "they are not read from its parent"
        rig.engine.parent_changed(reads_from_it=True)
        assert isinstance(part_of(rig.engine.answer(question)), Delta)


def test_reading_of_older_links_that_fails_at_the_old_parent_delays_none_at_the_next_one(
    config: Settings, store: Store
) -> None:
    question = SyncQuestion({"t": Want(after=written(store, 2, 3, 4))})
    older = Changing(store)
    with started(Rig(config, store, older)) as rig, ThreadPoolExecutor(1) as pool:
        older.gate.clear()
        older.reachable = False
        try:
            first = pool.submit(rig.engine.answer, question)
            assert poll(lambda: len(older.asked) == 1, LONG)
            rig.engine.parent_changed(reads_from_it=True)
        finally:
            older.gate.set()
        assert isinstance(part_of(first.result()), Incomplete)
        older.reachable = True
        assert isinstance(part_of(rig.engine.answer(question)), Delta)


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

    def keys() -> list[str]:
        links = [message.link for each in rig.sent for message in each.messages]
        return [change.key for link in links for change in link.changes]

    assert poll(lambda: keys()[-1:] == ["2"], LONG), keys()


OBJECTS = 60
"""Of the topic in the tests of whole answers."""


def fill(rig: Rig, store: Store) -> None:
    """Write the objects, and wait until the relay has them."""
    with store.transaction() as tx:
        for number in range(OBJECTS):
            tx.set(f"table-{number % 2}", f"k{number}", number, topic="t")
    wait_for(rig, store)


def wait_for(rig: Rig, store: Store) -> None:
    head = store.read_heads(["t"]).topics["t"].point
    assert poll(lambda: rig.engine.read(lambda state: state.tracker.chain("t").known) == head, LONG)


def whole(answer: SyncAnswer | None) -> Full:
    """A full answer whose objects have the count and the digest of the head that it names: they are of one point."""
    part = part_of(answer)
    assert isinstance(part, Full)
    contents = part.topics["t"]
    assert isinstance(contents.records, PackedRecords)
    found = contents_of("t", list(contents.records))
    assert (len(found), found.digest) == (contents.head.count, contents.head.digest)
    assert contents.head.point == part.head
    return part


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_copy, "STEP", 7)


@pytest.mark.usefixtures("small_steps")
def test_links_between_the_steps_of_an_answer_are_applied_and_not_in_it(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig, store)
    seen = []

    def changing(parts: Iterable[object]) -> Iterator[object]:
        """After each step all objects change, one is deleted, and one is new, before the next step."""
        for number, part in enumerate(parts):
            seen.append(part)
            with store.transaction() as tx:
                for key in range(number + 1, OBJECTS):
                    tx.set(f"table-{key % 2}", f"k{key}", [number, key], topic="t")
                tx.delete(f"table-{number % 2}", f"k{number}")
                tx.set("table-3", f"new-{number}", number, topic="t")
            wait_for(rig, store)
            yield part

    monkeypatch.setattr(engine_module, "giving_way", changing)
    before = store.read_heads(["t"]).topics["t"]
    part = whole(rig.engine.answer(SyncQuestion({"t": Want()})))
    assert part.topics["t"].head == before
    assert len(seen) > OBJECTS // 7
    monkeypatch.undo()
    after = whole(rig.engine.answer(SyncQuestion({"t": Want()})))
    assert after.topics["t"].head == store.read_heads(["t"]).topics["t"] != before


@pytest.mark.usefixtures("small_steps")
def test_answers_of_several_threads_are_each_of_one_point_under_links(rig: Rig, store: Store) -> None:
    fill(rig, store)
    rng, stop = random.Random(2), threading.Event()

    def write() -> int:
        written = 0
        while not stop.is_set():
            keys = rng.sample(range(OBJECTS + 10), 5)
            with store.transaction() as tx:
                for key in keys:
                    tx.set(f"table-{key % 2}", f"k{key}", [written], topic="t")
                tx.delete(f"table-{keys[0] % 2}", f"k{keys[0]}")
            written += 1
        return written

    until = time.monotonic() + LONG / 2

    def read() -> set[Point]:
        heads: list[Point] = []
        while len(heads) < 8 or (len(set(heads)) < 2 and time.monotonic() < until):
            heads.append(whole(rig.engine.answer(SyncQuestion({"t": Want()}))).head)
        return set(heads)

    with ThreadPoolExecutor(4) as pool:
        writer = pool.submit(write)
        try:
            points = [each.result(LONG) for each in [pool.submit(read) for _ in range(3)]]
        finally:
            stop.set()
        assert writer.result(LONG) > 0
    assert len(set().union(*points)) > 1, "the topic changed between the answers"
    assert rig.engine.failure is None


def test_objects_are_copied_once_for_replicas_that_begin_together(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig, store)
    monkeypatch.setattr(snapshots, "MIN_BYTES", 1)
    monkeypatch.setattr(snapshots, "MAX_WAIT", LONG)
    cache, question, copies = SnapshotCache(2**20), SyncQuestion({"t": Want()}), []
    entered, go = threading.Event(), threading.Event()

    def stopping(parts: Iterable[object]) -> Iterable[object]:
        copies.append(parts)
        entered.set()
        assert go.wait(LONG)
        return parts

    monkeypatch.setattr(engine_module, "giving_way", stopping)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(answer_of, rig.engine.answer, question, cache)
        assert entered.wait(LONG)
        others = [pool.submit(answer_of, rig.engine.answer, question, cache) for _ in range(3)]
        go.set()
        whole(first.result(LONG)[0])
        for each in others:
            answer, prepared = each.result(LONG)
            assert isinstance(part_of(answer), Delta)
            assert list(prepared) == ["t"]
    assert len(copies) == 1


def test_answer_that_is_given_up_leaves_no_copy(rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer came after its thread had given up waiting."""
    fill(rig, store)
    made = rig.engine.read(lambda state: rig.engine.core.answer_again(SyncQuestion({"t": Want()}), 0.0, 0.0))
    assert made is not None
    assert rig.engine.read(lambda state: state.cache._topics["t"].copies)
    del made
    written(store, 7)
    wait_for(rig, store)
    assert not rig.engine.read(lambda state: state.cache._topics["t"].copies)


@pytest.mark.usefixtures("small_steps")
def test_answer_that_is_being_made_ends_with_the_relay(rig: Rig, store: Store) -> None:
    """Else close would wait for a large topic, for which no replica waits any more."""
    fill(rig, store)
    found = rig.engine._answer(SyncQuestion({"t": Want()}))
    assert found is not None
    part = found.chains["t"]
    assert isinstance(part, Full)
    parts = rig.engine._parts(part.topics["t"].records)
    next(parts)
    rig.engine._ending = True
    with pytest.raises(StoreUnavailable, match="the relay is stopping"):
        list(parts)
