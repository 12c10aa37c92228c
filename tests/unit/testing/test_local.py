"""The helper for users' tests: deterministic, without threads, and otherwise like production."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pubsub_lib import Event
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import ClosedError, ConfigError, InvalidValueError, NotSubscribedError, UsageError, WaitTimeout
from pubsub_lib.fault_injection import Loss
from pubsub_lib.testing.local import PATIENCE, Local, LocalReplica
from tests.unit.world import Recorder

FAULTS = Loss(drop=0.3, duplicate=0.3, reorder=0.3, delay=0.3, corrupt=0.2)


@pytest.fixture
def local() -> Iterator[Local]:
    with Local() as local:
        yield local


def put(local: Local, key: str, value: object, topic: str = "t") -> None:
    with local.store.transaction() as tx:
        tx.set("a", key, value, topic=topic)


def shown(replica: LocalReplica) -> dict[str, object]:
    return dict(replica.iterate("a"))


def test_replica_works_only_inside_flush(local: Local) -> None:
    threads = set(threading.enumerate())
    replica, recorder = local.replica(["t"]), Recorder()
    replica.on("a", recorder)
    put(local, "1", "one")
    assert (recorder.changes, shown(replica), replica.synced) == ([], {}, False)
    local.flush()
    assert recorder.brief == [("create", "1", "one")]
    put(local, "1", "uno")
    put(local, "2", "two", topic="other")
    assert recorder.brief == [("create", "1", "one")]
    local.flush()
    assert recorder.brief == [("create", "1", "one"), ("set", "1", "uno")]
    assert shown(replica) == {"1": "uno"}
    assert set(threading.enumerate()) <= threads, "no thread was started; one of an earlier test may end"


def test_flush_covers_every_replica_with_any_topics(local: Local) -> None:
    one, every = local.replica(["t"]), local.replica()
    put(local, "1", 1)
    put(local, "2", 2, topic="other")
    local.flush()
    assert (shown(one), shown(every)) == ({"1": 1}, {"1": 1, "2": 2})
    one.subscribe("other")
    local.flush()
    assert shown(one) == {"1": 1, "2": 2}
    one.unsubscribe("t")
    one.close()
    put(local, "3", 3)
    local.flush()
    assert shown(every) == {"1": 1, "2": 2, "3": 3}
    with pytest.raises(ClosedError):
        shown(one)


def stored(local: Local) -> dict[str, object]:
    return {record.key: msgspec.json.decode(record.value) for record in local.store.objects()}


def history(seed: int, loss: Loss) -> tuple[list[tuple[str, str, object]], float, int]:
    """For one seed: the changes that a handler got, the duration, and the number of lost messages."""
    rng = random.Random(seed)
    with Local(seed=seed, loss=loss) as local:
        replica, recorder = local.replica(["t"]), Recorder()
        replica.on("a", recorder)
        for number in range(30):
            put(local, str(rng.randrange(5)), number)
            if rng.random() < 0.3:
                local.flush()
                assert shown(replica) == stored(local)
        local.flush()
        assert shown(replica) == stored(local)
        return recorder.brief, local.now, replica.status().driver["lost"]


@pytest.mark.parametrize("seed", range(3))
def test_flush_with_faults_converges_and_is_deterministic(seed: int) -> None:
    first = history(seed, FAULTS)
    assert first == history(seed, FAULTS)
    assert first[2] > 0, "some messages were lost"
    assert first != history(seed + 100, FAULTS)


def test_replica_polls_the_store_while_the_network_is_cut(local: Local) -> None:
    replica = local.replica(["t"])
    local.flush()
    local.set_loss(Loss(drop=1.0))
    put(local, "1", 1)
    local.advance(10.0)
    assert 10.0 <= replica.staleness() < 12.0
    assert shown(replica) == {}
    local.flush()
    assert shown(replica) == {"1": 1}
    timing = Timing()
    assert timing.stale_after < local.now < timing.stale_after + timing.poll_interval + timing.sync_wait


def test_waits_of_the_code_under_test_move_the_local_clock(local: Local) -> None:
    replica, recorder = local.replica(["t"]), Recorder()
    replica.on("a", recorder)
    replica.wait_synced()
    put(local, "1", 1)
    with local.store.transaction() as tx:
        tx.set("a", "2", 2, topic="t")
    assert tx.commit is not None
    replica.wait_for(tx.commit)
    assert shown(replica) == {"1": 1, "2": 2}
    replica.wait_handled(tx.commit, timeout=1.0)
    assert [key for _, key, _ in recorder.brief] == ["1", "2"]
    before = local.now
    with pytest.raises(WaitTimeout):
        replica.wait_for(99, timeout=1000.0)
    assert local.now == pytest.approx(before + 1000.0)
    with pytest.raises(WaitTimeout):
        replica.wait_for(99)
    assert local.now == pytest.approx(before + 1000.0 + PATIENCE)


def test_flush_raises_the_exception_of_a_handler_that_gave_up(local: Local) -> None:
    replica = local.replica(["t"])
    tried: list[object] = []

    def broken(change: Event) -> None:
        tried.append(change.new)
        if change.key == "bad":
            raise AssertionError("no such switch")

    replica.on("a", broken)
    put(local, "bad", 1)
    put(local, "good", 2)
    with pytest.raises(AssertionError, match="no such switch") as raised:
        local.flush()
    assert tried == [1, 2, 1, 1, 1, 1], (
        "as in production: other changes are handled meanwhile, and this one is tried five times"
    )
    assert "broken on create of a 'bad', after 5 tries" in raised.value.__notes__[0]
    local.flush()
    put(local, "bad", 3)
    with pytest.raises(AssertionError):
        local.flush()


def test_flush_succeeds_when_a_handler_recovers() -> None:
    with Local(handling=HandlerPolicy(tries=3, backoff=60.0, max_backoff=60.0)) as local:
        replica = local.replica(["t"])
        failures = iter([RuntimeError("busy"), RuntimeError("still busy")])
        recorder = Recorder()

        def handler(change: Event) -> None:
            error = next(failures, None)
            if error is not None:
                raise error
            recorder(change)

        replica.on("a", handler)
        put(local, "1", 1)
        local.flush()
        assert recorder.brief == [("create", "1", 1)]
        assert local.now > 120.0, "two pauses of a minute on the local clock"


def test_keyboard_interrupt_in_a_handler_reaches_the_test(local: Local) -> None:
    def interrupted(change: Event) -> None:
        raise KeyboardInterrupt

    local.replica(["t"]).on("a", interrupted)
    put(local, "1", 1)
    with pytest.raises(KeyboardInterrupt):
        local.flush()


def test_flush_covers_writes_and_reads_of_handlers(local: Local) -> None:
    replica = local.replica(["t", "answers"])

    def answer(change: Event) -> None:
        with local.store.transaction() as tx:
            tx.set("answer", change.key, change.new * 2, topic="answers")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=5.0)
        assert replica.get("answer", change.key) == change.new * 2
        with pytest.raises(UsageError, match="called by a handler"):
            replica.wait_handled(tx.commit)
        with pytest.raises(UsageError, match="called by a handler"):
            local.flush()

    recorder = Recorder()
    replica.on("answer", recorder)
    replica.on("a", answer)
    put(local, "1", 21)
    local.flush()
    assert recorder.brief == [("create", "1", 42)]


def test_flush_covers_writers_on_other_threads(local: Local) -> None:
    replica = local.replica()
    local.flush()
    writers = [threading.Thread(target=put, args=(local, str(number), number)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    local.flush()
    assert shown(replica) == {str(number): number for number in range(8)}


def test_types_indexes_and_errors_are_those_of_production() -> None:
    class Port(msgspec.Struct):
        switch: str

    with Local(tables={"lport": Port}) as local:
        replica = local.replica(["t"])
        replica.add_index("by switch", "lport", "switch")
        with local.store.transaction() as tx:
            tx.set("lport", "p1", Port("s1"), topic="t")
        local.flush()
        assert replica.get("lport", "p1") == Port("s1")
        assert replica.lookup("by switch", "s1") == [("p1", Port("s1"))]
        with pytest.raises(NotSubscribedError):
            replica.on("lport", print, topic="other")
        with pytest.raises(InvalidValueError), local.store.transaction() as tx:
            tx.set("lport", "p2", {"switch": 7})


def test_flush_fails_when_the_replica_differs_from_the_store(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.replica.consistency_check.differences", lambda *_: ["a '1' is 2 and should be 1"])
    local.replica(["t"])
    put(local, "1", 1)
    with pytest.raises(Exception, match="the replica differs from the store: a '1' is 2 and should be 1"):
        local.flush()


def test_flush_timeout_names_the_replicas_missing_point(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = local.replica(["t"])
    local.flush()
    monkeypatch.setattr("pubsub_lib.testing.local.PATIENCE", 60.0)
    monkeypatch.setattr(local.store, "read_sync", lambda wants: 1 / 0)
    local.set_loss(Loss(drop=1.0))
    put(local, "1", 1)
    with pytest.raises(WaitTimeout, match=r"did not catch up in 60.0 s .*it knows 't' up to .*ZeroDivisionError"):
        local.flush()
    assert not replica.closed


def test_close_removes_only_its_own_database() -> None:
    with Local() as one, Local() as other:
        folder = Path(one.settings.store_url.removeprefix("sqlite:///")).parent
        one.close()
        one.close()
        assert not folder.exists()
        put(other, "1", 1)
        other.flush()


def test_refused_arguments_leave_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pubsub_lib.testing.local._MEMORY", tmp_path)
    with pytest.raises(InvalidValueError, match="table"):
        Local(tables={"": dict})
    with pytest.raises(ConfigError, match="timing"):
        Local(timing=5)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_objects_without_a_topic_reach_a_replica_of_named_topics_as_in_production() -> None:
    with Local() as local:
        replica, alone = local.replica(["tenant-1"]), local.replica(["tenant-1"], default_topic=False)
        with local.store.transaction() as tx:
            tx.set("chassis", "c1", 1)
        local.flush()
        assert (replica.get("chassis", "c1"), alone.get("chassis", "c1")) == (1, None)
        assert (replica.topics, alone.topics) == (("tenant-1", "default"), ("tenant-1",))
