"""The threads of a replica survive errors of the store."""

import ast
import logging
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import AnswerAge, Point, SyncAnswer, Want
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.sync_scheduler import SyncScheduler
from pubsub_lib.errors import StoreUnavailable, WaitTimeout
from pubsub_lib.sync.client import Busy
from pubsub_lib.threads.periodic_thread import PeriodicThread
from tests.unit.core.builders import UUID, History, envelope
from tests.unit.world import QUICK, Recorder, busy, settings

LONG = longest(120.0)
OTHER = "f" * 32
PATIENT = msgspec.structs.replace(QUICK, max_idle_time=1000.0, verify_interval=0.0)
"""No hello and no polling within a test."""
SLOW = msgspec.structs.replace(PATIENT, message_delay_window=LONG, connect_jitter=LONG)
"""Nor a sync of what is missing."""


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config.store_url) as store, store.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
        yield store


class Broken:
    """A real reader whose first answers are exceptions."""

    def __init__(self, store: Store, failures: list[Exception]) -> None:
        self._store = store
        self.failures = failures

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        if self.failures:
            raise self.failures.pop(0)
        return self._store.read_sync(wants)


def test_the_sync_thread_survives_every_exception_of_a_reader(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Broken(store, [StoreUnavailable("out"), StoreUnavailable("out"), ZeroDivisionError("a bug")])
    with caplog.at_level(logging.WARNING), Replica(config, topics=["t"], store=reader) as replica:
        replica.wait_synced(timeout=LONG)
        assert replica.status().counters.syncs_failed == 3
    messages = [record.getMessage() for record in caplog.records if record.name.endswith("fault_log")]
    assert messages.count("a sync failed and will be retried: out") == 1, "an outage is logged once"
    assert sum("please report" in message for message in messages) == 1


def test_a_server_that_asks_for_a_pause_gets_it(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []
    failed = SyncScheduler.failed

    def recorded(scheduler: SyncScheduler, now: float, pause: float | None = None, why: str = "") -> None:
        pauses.append(pause)
        failed(scheduler, now, None, why)

    monkeypatch.setattr(SyncScheduler, "failed", recorded)
    reader = Broken(store, [Busy("it is busy", 30.0), StoreUnavailable("out")])
    with Replica(config, topics=["t"], store=reader) as replica:
        replica.wait_synced(timeout=LONG)
    assert pauses == [30.0, None]


def test_a_follow_up_step_has_its_notice_between_the_events(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = Point(9, 1)
    first, second = (
        Event("a", "2", "t", "delete", 5, 4, b"1", None, 9),
        Event("a", "2", "t", "create", 4, None, None, b"1", 9),
    )
    calls: SimpleQueue[object] = SimpleQueue()
    change = HistoryChange({"t": (point, point)})
    steps = [StepResult([first], then=StepResult([second], history=change))]
    with Replica(config, topics=["t"], store=store) as replica:
        replica.wait_synced(timeout=LONG)
        replica.on("a", lambda change: calls.put(change.version), key="2", on_history_changed=calls.put)
        monkeypatch.setattr(ReplicaState, "tick", lambda *_: steps.pop() if steps else StepResult())
        replica.resync("t")  # wakes the clock
        assert [calls.get(timeout=LONG) for _ in range(3)] == [5, change, 4]


def test_events_reach_handlers_before_and_without_their_log_line(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, lost_lines: list[logging.LogRecord]
) -> None:
    point = Point(9, 1)
    event = Event("a", "2", "t", "create", 4, None, None, b"1", 9)
    steps = [StepResult([event], history=HistoryChange({"t": (point, point)}))]
    handled = threading.Event()
    before = []

    def refuse(record: logging.LogRecord) -> bool:
        before.append(handled.wait(5.0))
        raise ZeroDivisionError

    log = logging.getLogger("pubsub_lib.replica.history_log")
    log.addFilter(refuse)
    try:
        with Replica(config, topics=["t"], store=store) as replica:
            replica.wait_synced(timeout=LONG)
            replica.on("a", lambda change: handled.set(), key="2")
            monkeypatch.setattr(ReplicaState, "tick", lambda *_: steps.pop() if steps else StepResult())
            replica.resync("t")  # wakes the clock
            assert handled.wait(10.0)
    finally:
        log.removeFilter(refuse)
    assert before == [True]
    lost_lines.clear()


def test_nonces_of_hello_requests_cannot_be_predicted(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[random.Random] = []

    def state(timing: Any, limits: Any, rng: random.Random, *more: Any) -> ReplicaState:
        sources.append(rng)
        return ReplicaState(timing, limits, rng, *more)

    monkeypatch.setattr("pubsub_lib.replica.engine.ReplicaState", state)
    Replica(config, topics=["t"], store=store).close()
    assert [type(each) for each in sources] == [random.SystemRandom]


def test_rule_14_link_that_waited_for_a_lease_reaches_handlers(sqlite_url: str, store: Store) -> None:
    config = settings(sqlite_url, timing=PATIENT)
    with Replica(config, topics=["t"], store=store) as replica, Publisher(config, store) as publisher:
        replica.wait_synced(timeout=LONG)
        recorder = Recorder()
        replica.on("a", recorder, key="2")
        engine = replica._engine
        engine.on_directory([OTHER])
        with store.transaction() as tx:
            tx.set("a", "2", 2, topic="t")
        assert poll(lambda: engine.read(lambda state: state.unleased.messages) == 1, LONG)
        assert replica.get("a", "2") is None
        engine.on_directory([OTHER, publisher.uuid])
        assert poll(lambda: recorder.brief == [("create", "2", 2)], LONG)
        assert replica.status().counters.unleased == 0


def test_rule_14_link_without_a_lease_wakes_a_clock_that_waits_for_something_else(
    sqlite_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    history = History()
    history.one()
    with Replica(settings(sqlite_url, timing=SLOW), topics=["t"], store=store) as replica:
        replica.wait_synced(timeout=LONG)
        engine = replica._engine
        engine.on_directory([OTHER])
        engine.on_envelope(envelope(history.one(), uuid=OTHER, store_id=store.store_id))
        assert engine.read(lambda state: state.tracker.restless), "the link waits for the one before"
        mine = threading.get_ident()  # the sync's thread may still wake the clock

        def wake(thread: PeriodicThread) -> None:
            if threading.get_ident() == mine:
                woken.append(thread._name)

        monkeypatch.setattr(PeriodicThread, "wake", wake)
        for uuid in (UUID, UUID):
            engine.on_envelope(envelope(History().one(), uuid=uuid, store_id=store.store_id))
        assert woken == ["clock"], "the second one causes no further reading"
        assert engine.read(ReplicaState.next_time) <= engine.now() + SLOW.connect_jitter


def test_rule_r5_replica_with_parents_polls_after_it_may_have_left_its_parent(config: Settings) -> None:
    config = Settings(store_url=config.store_url, driver="zmq_pubsub_driver")
    below = msgspec.structs.replace(config, parents=("tcp://127.0.0.1:9",))
    for each, delay in ((below, config.timing.parent_wait), (config, 0.0)):
        with closing(Replica(each, topics=["t"])) as replica:
            assert replica._engine.read(lambda state: state.tracker.freshness.poll_delay) == delay


def test_an_incomplete_answer_is_a_failed_sync(config: Settings, store: Store) -> None:
    reader = Incomplete(store)
    with Replica(config, topics=["t"], store=reader) as replica:
        replica.wait_synced(timeout=LONG)
        assert reader.failures == 0
        assert replica.status().counters.syncs_failed == 2


class Incomplete:
    """A real reader whose first answers are empty."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.failures = 2

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        answer = self._store.read_sync(wants)
        if self.failures:
            self.failures -= 1
            return SyncAnswer(answer.store, {})
        return answer


def test_an_answer_that_lacks_a_topic_is_a_failed_sync_that_names_it(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Following({"t"}, store)
    with caplog.at_level(logging.WARNING), Replica(
        config, ["t", "u"], default_topic=False, store=relay
    ) as replica:
        assert poll(lambda: replica.status().counters.syncs_failed >= 3, LONG)
        with pytest.raises(WaitTimeout, match=r"because the answer lacks the topic 'u'; "):
            replica.wait_synced(timeout=0.01)
        status = replica.status()
        assert status.last_error.startswith("the answer lacks the topic 'u'; ")
        assert status.last_error in status.problems[0]
        assert status.counters.refused == 0
        relay.topics.add("u")
        replica.wait_synced(timeout=LONG)
        assert poll(lambda: replica.status().last_error == "", LONG)
    assert sum("lacks the topic 'u'" in record.getMessage() for record in caplog.records) == 1


class Following:
    """A real reader that answers as a relay of these topics."""

    def __init__(self, topics: set[str], store: Store) -> None:
        self._store = store
        self.topics = topics

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        answer = self._store.read_sync(wants)
        chains = {name: part for name, part in answer.chains.items() if name in self.topics}
        ages = dict.fromkeys(chains, AnswerAge(0.0, 0.0, 0.0))
        return msgspec.structs.replace(answer, chains=chains, ages=ages)


def test_rule_09_an_answer_that_comes_after_the_timeout_is_ignored(
    sqlite_url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(store)
    config = settings(sqlite_url, timing=msgspec.structs.replace(QUICK, sync_timeout=0.2, max_idle_time=LONG))
    with caplog.at_level(logging.WARNING), Replica(config, topics=["t"], store=slow) as replica:
        assert slow.reading.acquire(timeout=LONG)
        failed = replica.status().counters.syncs_failed  # of a sync that no thread had begun to read
        assert poll(lambda: replica.status().counters.syncs_failed > failed, LONG)
        why = replica.status().last_error
        assert why == "no complete answer was received within 0.2 s (sync_timeout)"
        slow.release.release()
        assert slow.reading.acquire(timeout=LONG), "the next sync reads"
        assert (replica.status().counters.late_answers, replica.status().last_error) == (1, why)
        slow.release.release(100)
        replica.wait_synced(timeout=LONG)
        assert poll(lambda: replica.status().last_error == "", LONG)
    assert sum("no complete answer" in record.getMessage() for record in caplog.records) == 1


class Slow:
    """A real reader that delays each answer until it is released."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reading = threading.Semaphore(0)
        self.release = threading.Semaphore(0)

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        answer = self._store.read_sync(wants)
        self.reading.release()
        assert self.release.acquire(timeout=LONG)
        return answer


def test_close_ends_all_threads(config: Settings, store: Store) -> None:
    before = set(threading.enumerate())  # another test's driver may still be ending a thread
    with Replica(config, topics=["t"]) as replica:
        replica.on("a", _nothing)
        replica.wait_synced(timeout=LONG)
        ours = set(threading.enumerate()) - before
        assert {"pubsub-clock", "pubsub-sync"} <= {thread.name for thread in ours}
    assert [thread for thread in ours if thread.is_alive()] == []


def _nothing(change: Any) -> None:
    pass


def test_a_wait_ends_by_a_step_or_by_its_timeout(config: Settings, store: Store) -> None:
    with Replica(config, topics=["t"], store=store) as replica:
        engine = replica._engine
        engine.wait(lambda state: state.tracker.synced, None, "the sync")
        with pytest.raises(WaitTimeout, match="timed out waiting for rain"):
            engine.wait(lambda state: False, engine.now() + 0.01, "rain")


def test_a_call_that_must_not_block_is_left_out_while_another_thread_holds_the_lock(
    config: Settings, store: Store
) -> None:
    replica = Replica(config, topics=["t"], store=store)
    assert replica._engine.call_if_free(replica.staleness) == (float("inf"),)
    with busy(replica):
        assert replica._engine.call_if_free(replica.staleness) is None
    with pytest.raises(ZeroDivisionError):
        replica._engine.call_if_free(lambda: 1 // 0)
    with busy(replica):  # the call released the lock
        pass
    replica.close()


# -- who uses the engine ------------------------------------------------------------------------------------------


def defined(source: str) -> set[str]:
    """The attributes and methods of the class Engine."""
    (engine,) = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == "Engine"]
    nodes = list(ast.walk(engine))
    methods = {each.name for each in engine.body if isinstance(each, ast.FunctionDef)}
    return methods | {
        each.attr
        for each in nodes
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }


def private_uses(source: str) -> list[str]:
    """The expressions of a module that use a private attribute of an engine, or its lock by another name."""
    tree = ast.parse(source)
    names = {"engine"}

    def is_engine(node: ast.expr | None) -> bool:
        if isinstance(node, ast.Name):
            return node.id in names
        if isinstance(node, ast.NamedExpr):
            return is_engine(node.value)
        if isinstance(node, ast.Call):
            return ast.unparse(node.func).rpartition(".")[2] == "Engine"
        return isinstance(node, ast.Attribute) and node.attr in ("engine", "_engine")

    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            if "Engine" in ast.unparse(node.annotation):
                names.add(node.arg if isinstance(node, ast.arg) else ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and is_engine(node.value):
            names.update(each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.NamedExpr) and is_engine(node.value):
            names.add(node.target.id)
    found = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_engine(node.value) and node.attr.startswith("_"):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and len(node.args) > 1 and is_engine(node.args[0]):
            if isinstance(node.args[1], ast.Constant) and str(node.args[1].value).startswith("_"):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Engine" for base in node.bases):
            own = [each for each in ast.walk(node) if isinstance(each, ast.Attribute) and each.attr in PRIVATE]
            found.extend(f"{node.name}: {ast.unparse(each)}" for each in own if ast.unparse(each.value) == "self")
    return found


ROOT = Path(__file__).resolve().parents[3]
NAMES = defined((ROOT / "pubsub_lib/replica/engine.py").read_text())
PRIVATE = {name for name in NAMES if name.startswith("_")}


def test_engine_has_these_public_attributes_and_neither_lock_nor_state() -> None:
    assert {
        "start", "close", "subscribe", "unsubscribe", "resync", "add_index",  # what Replica's own methods do
        "read", "shown", "call_if_free", "wait", "pause", "watch",  # with the lock held
        "now", "sync_failures", "failure", "counters",
        "on_envelope", "on_directory",  # what driver and discovery call
        "clock", "request_hello",  # what a relay's engine does
    } == NAMES - PRIVATE  # fmt: skip


def test_no_other_module_uses_a_private_attribute_of_the_engine() -> None:
    folders = ("pubsub_lib", "pubsub_pytest", "drivers", "simulator", "tests", "tools", "docs")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {path: path.read_text() for path in files if path != ROOT / "pubsub_lib/replica/engine.py"}
    found = {
        str(path.relative_to(ROOT)): uses
        for path, text in texts.items()
        if ("replica.engine" in text or "_engine" in text) and (uses := private_uses(text))
    }
    assert found == {}, "use a public method of Engine"


@pytest.mark.parametrize(
    "source",
    [
        "with replica._engine._lock: pass",
        "self._engine._syncs.wake()",
        "engine = Engine(settings)\nengine._state",
        "mine = replica.threaded._engine\nmine._changed.wait()",
        "def guard(given: Engine) -> None:\n    given._lock.acquire()",
        "monkeypatch.setattr(replica._engine, '_tick', print)",
        "getattr(replica._engine, '_job')",
        "class LocalEngine(Engine):\n    def run(self):\n        self._tick(0.0)",
    ],
)
def test_a_private_use_is_found(source: str) -> None:
    assert len(private_uses(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "replica._engine.read(lambda state: state.tracker)",
        "self._engine = Engine()",
        "with self._engine().connect() as connection: connection._x",
        "class Watched(Engine):\n    def run(self):\n        self._mine = 1",
    ],
)
def test_a_public_use_is_not_found(source: str) -> None:
    assert private_uses(source) == []
