"""Threads that commit at the same time share one transaction, and keep their own conditions, points and errors."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from pubsub_lib.core import values
from pubsub_lib.core.model import Link
from pubsub_lib.errors import AlreadyExists, NotFound, StoreBusy, StoreError, VersionMismatch
from pubsub_lib.store import Store, writer
from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.group_commit import MAX_BYTES, MAX_OBJECTS, Attempt, GroupCommit, _Waiting
from pubsub_lib.store.verbs import Operation, ReadChanged
from pubsub_lib.store.writer import Work
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener
from tests.unit.store.test_commit import commits, lost_after, lost_before
from tests.unit.store.test_fork_safety import child

Do = Callable[[], object]


def wait_for_queue(groups: GroupCommit, number: int) -> None:
    """Until this number of threads waits in the queue."""
    with groups._changed:
        while len(groups._queue) < number:
            groups._changed.wait(0.01)  # an entry into the queue gives no notification


def together(store: Store, *doing: Do) -> list[Future[Any]]:
    """Run each on a thread: the first is held in its transaction until the others wait in the queue, in this order."""
    groups = store._committer._groups
    held, go = threading.Event(), threading.Event()
    original = groups._execute

    def execute(works: Sequence[Work], attempts: list[Attempt]) -> None:
        groups._execute = original
        held.set()
        assert go.wait(60)
        original(works, attempts)

    groups._execute = execute
    with ThreadPoolExecutor(len(doing)) as pool:
        futures: list[Future[Any]] = [pool.submit(doing[0])]
        assert held.wait(60)
        for number, do in enumerate(doing[1:], 1):
            futures.append(pool.submit(do))
            wait_for_queue(groups, number)
        go.set()
    return futures


def put(store: Store, key: str, topic: str = "x", value: object = 1) -> Do:
    def do() -> object:
        with store.transaction() as tx:
            tx.set("t", key, value, topic=topic)
        assert tx.commit is not None
        return tx.commit

    return do


def create(store: Store, key: str) -> Do:
    def do() -> object:
        with store.transaction() as tx:
            tx.create("t", key, 1, topic="x")
        return tx.commit

    return do


def test_waiting_threads_share_one_transaction(store: Store) -> None:
    seen: dict[int, list[Link]] = {}
    store.on_commit(lambda links: seen.setdefault(threading.get_ident(), []).extend(links))
    with commits(store) as calls:
        futures = together(store, *(put(store, f"k{number}", f"topic {number % 3}") for number in range(8)))
    assert calls == [2]
    made = [each.result() for each in futures]
    assert [each.point.position for each in made] == list(range(1, 9))
    assert len({each.nonce for each in made}) == 8
    assert sorted(link.point.position for links in seen.values() for link in links) == list(range(1, 9))
    assert all(store.committed(each.nonce) for each in made)
    assert assert_consistent(store) == 8


def test_a_violated_condition_leaves_the_others(open_store: Opener) -> None:
    store, other = open_store(), open_store()
    put(store, "there")()
    put(store, "read")()
    version = store.get_record("t", "there")
    assert version is not None

    def stale() -> None:
        with store.transaction() as tx:
            tx.set("t", "stale", 1, version=7)

    def overtaken() -> None:
        with store.transaction() as tx:
            tx.get("t", "read")  # an object that no other work has, else this one would be in another group
            put(other, "read", value=2)()
            tx.set("t", "by reader", 1)

    def delete() -> None:
        with store.transaction() as tx:
            tx.delete("t", "gone")

    with commits(store) as calls:
        first, *others = together(
            store,
            put(store, "a"),
            create(store, "there"),
            put(store, "b"),
            stale,
            delete,
            put(store, "c"),
            create(store, "d"),
            overtaken,
        )
    assert calls == [2]
    errors = [each.exception() for each in others]
    assert [type(each) for each in errors] == [
        AlreadyExists, type(None), VersionMismatch, NotFound, type(None), type(None), ReadChanged,
    ]  # fmt: skip
    assert first.exception() is None
    assert {each.key for each in store.objects()} == {"there", "read", "a", "b", "c", "d"}
    assert store.get("t", "read") == 2
    assert assert_consistent(store) == 7


def test_a_group_of_violated_conditions_commits_nothing(store: Store) -> None:
    put(store, "a")()
    with commits(store) as calls:
        futures = together(store, create(store, "a"), create(store, "a"), put(store, "a", value=1))
    assert calls == [0]
    assert [type(each.exception()) for each in futures[:2]] == [AlreadyExists, AlreadyExists]
    assert assert_consistent(store) == 1


@pytest.mark.parametrize("reads", [False, True])
def test_works_on_one_object_are_committed_one_after_the_other(reads: bool, store: Store) -> None:
    put(store, "counter", value={"n": 0})()

    def count() -> None:
        def once(tx: Any) -> None:
            if reads:
                tx.set("t", "counter", {"n": tx.get("t", "counter")["n"] + 1})
                return
            record = store.get_record("t", "counter")
            assert record is not None
            tx.set("t", "counter", {"n": values.decode(record.value)["n"] + 1}, version=record.version)

        while True:
            try:
                store.write(once)
                return
            except VersionMismatch:
                continue

    for each in together(store, *[count] * 4):
        each.result()
    assert store.get("t", "counter") == {"n": 4}
    assert assert_consistent(store) == 5


@pytest.mark.parametrize("behaviour", [lost_before, lost_after])
def test_lost_commit_of_a_group_is_looked_up_for_each(behaviour: Callable[..., None], store: Store) -> None:
    def normal(commit: Callable[[], None]) -> None:
        commit()

    with commits(store, normal, behaviour):
        futures = together(store, *(put(store, f"k{number}") for number in range(5)))
    made = [each.result() for each in futures]
    assert len({each.point.position for each in made}) == 5
    assert assert_consistent(store) == 5


def test_an_error_of_the_database_for_one_work_leaves_the_others(store: Store) -> None:
    put(store, "old", "lost")()
    with store._writers.begin() as connection:
        connection.execute(text("DELETE FROM pubsub_topics WHERE topic = 'lost'"))
        connection.execute(text("DELETE FROM pubsub_links WHERE topic = 'lost'"))
    futures = together(store, put(store, "a"), put(store, "b"), put(store, "new", "lost"), put(store, "c"))
    assert [type(each.exception()) for each in futures] == [type(None), type(None), StoreError, type(None)]
    assert {each.key for each in store.objects(topic="x")} == {"a", "b", "c"}


def test_a_busy_database_lets_every_thread_try_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    original = writer.write_together
    sizes: list[int] = []

    def busy(executor: Any, works: Sequence[Work], *more: Any) -> Any:
        sizes.append(len(works))
        if len(works) > 1:
            raise StoreBusy("another writer created one of these objects")
        return original(executor, works, *more)

    monkeypatch.setattr(writer, "write_together", busy)
    for each in together(store, *(put(store, f"k{number}") for number in range(4))):
        each.result()
    assert sizes.count(3) == 1
    assert set(sizes) == {1, 3}, "one alone may find the database busy and try again"
    assert sizes.count(1) >= 4
    assert assert_consistent(store) == 4


def test_hooks_run_on_the_thread_of_their_transaction(store: Store) -> None:
    wrong: list[str] = []
    local = threading.local()

    def hook(proposed: Any) -> None:
        if getattr(local, "key", None) != proposed.key:
            wrong.append(proposed.key)

    store.before_write(hook)

    def named(key: str) -> Do:
        def do() -> None:
            local.key = key
            put(store, key)()

        return do

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(named(f"k{number}")) for number in range(12)]:
            each.result()
    assert wrong == []
    assert assert_consistent(store) == 12


def work(*keys: str) -> Work:
    return Work([Operation("set", "t", key, b"1") for key in keys], {}, hash(keys) % 1000 + 1, "")


def grouped(*works: Work) -> list[list[int]]:
    """The groups, as numbers of works."""
    queue = GroupCommit(succeed)
    waiting = [_Waiting(each) for each in works]
    queue._queue = list(waiting)
    sizes: list[list[int]] = []
    while queue._queue:
        sizes.append([waiting.index(each) for each in queue._next_group()])
    return sizes


def succeed(works: Sequence[Work], attempts: list[Attempt]) -> None:
    attempts[:] = [Attempt()] * len(works)


def test_groups_are_bounded_and_have_no_object_twice() -> None:
    assert grouped(work("a"), work("b"), work("a", "c"), work("c")) == [[0, 1, 3], [2]]
    many = work(*map(str, range(MAX_OBJECTS)))
    assert grouped(work("a"), many, work("b")) == [[0, 2], [1]]
    assert grouped(many, work("b")) == [[0], [1]]
    large = Work([Operation("set", "t", "large", b"1" * MAX_BYTES)], {}, 1, "")
    assert grouped(work("a"), large, work("b")) == [[0, 2], [1]]
    assert grouped(large, work("b")) == [[0], [1]]
    reading = Work([Operation("set", "t", "x", b"1")], {("t", "a"): 1}, 1, "")
    assert grouped(work("a"), reading, work("b")) == [[0, 2], [1]]


class Held:
    """Holds the first execution until the others wait in the queue; then ``then`` executes."""

    def __init__(self, then: Callable[[Sequence[Work], list[Attempt]], None]) -> None:
        self._then = then
        self._held, self._go = threading.Event(), threading.Event()
        self.queue = GroupCommit(self._execute)

    def _execute(self, works: Sequence[Work], attempts: list[Attempt]) -> None:
        if self._held.is_set():
            self._then(works, attempts)
            return
        self._held.set()
        assert self._go.wait(60)
        succeed(works, attempts)

    def run(self, *keys: str) -> list[Future[Attempt]]:
        with ThreadPoolExecutor(len(keys)) as pool:
            futures = [pool.submit(self.queue.run, work(keys[0]))]
            assert self._held.wait(60)
            for number, key in enumerate(keys[1:], 1):
                futures.append(pool.submit(self.queue.run, work(key)))
                wait_for_queue(self.queue, number)
            self._go.set()
        return futures


def test_followers_of_an_interrupted_thread_get_what_is_known() -> None:
    def interrupted(works: Sequence[Work], attempts: list[Attempt]) -> None:
        attempts[:] = [Attempt(error=StoreBusy("x"), shared=True) for _ in works]
        raise KeyboardInterrupt

    first, leader, follower = Held(interrupted).run("a", "b", "c")
    assert first.result() == Attempt()
    assert isinstance(leader.exception(), KeyboardInterrupt)
    assert follower.result().shared


def test_thread_interrupted_before_the_execution_leaves_the_group_to_others() -> None:
    times = [0]

    def interrupted_once(works: Sequence[Work], attempts: list[Attempt]) -> None:
        times[0] += 1
        if times[0] == 1:
            raise KeyboardInterrupt
        succeed(works, attempts)

    _, leader, *followers = Held(interrupted_once).run("a", "b", "c", "d")
    assert isinstance(leader.exception(), KeyboardInterrupt)
    assert [each.result() for each in followers] == [Attempt()] * 2


def test_thread_interrupted_in_the_queue_blocks_no_other() -> None:
    queue = GroupCommit(succeed)
    queue._leader = 1  # another thread executes a group
    original = queue._changed.wait_for

    def interrupted(*_: object) -> bool:
        queue._changed.wait_for = original  # type: ignore[method-assign]
        raise KeyboardInterrupt

    queue._changed.wait_for = interrupted  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        queue.run(work("a"))
    assert queue._queue == []
    queue._leader = None
    assert queue.run(work("a")) == Attempt()


def test_leading_thread_executes_an_inner_transaction_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may write while its thread leads a group."""
    if store._writers.dialect.name == "sqlite":
        pytest.skip("the outer transaction has the only connection that may write")
    original = writer.write_together

    def with_inner(*given: Any) -> Any:
        monkeypatch.setattr(writer, "write_together", original)
        put(store, "inner")()
        return original(*given)

    monkeypatch.setattr(writer, "write_together", with_inner)
    put(store, "outer")()
    assert assert_consistent(store) == 2


def test_waiting_thread_executes_an_inner_transaction_at_once(store: Store) -> None:
    """A signal handler may write while its thread waits in the queue."""
    groups = store._committer._groups
    groups._leader = 1  # another thread executes a group
    original = groups._changed.wait_for
    waits: list[object] = []

    def interrupted(until: Callable[[], bool]) -> bool:
        waits.append(until)
        assert len(waits) == 1, "the handler waits for its turn behind the call that it interrupted"
        put(store, "inner")()
        groups._leader = None
        return original(until)

    groups._changed.wait_for = interrupted  # type: ignore[assignment, method-assign]
    put(store, "outer")()
    assert assert_consistent(store) == 2
    assert not groups.inside


def test_an_exception_of_a_users_type_belongs_to_its_thread(open_store: Opener) -> None:
    class Picky(msgspec.Struct):
        n: int = 0

        def __post_init__(self) -> None:
            if self.n == 7:
                raise KeyError("seven")

    store = open_store(tables={"t": Picky})

    def write(key: str, n: int) -> Do:
        def do() -> None:
            with store.transaction() as tx:
                tx.update("t", key, {"n": n})

        return do

    for key in "abc":
        with store.transaction() as tx:
            tx.create("t", key, {"n": 1})
    futures = together(store, write("a", 2), write("b", 7), write("c", 3))
    assert [type(each.exception()) for each in futures] == [type(None), KeyError, type(None)]
    assert assert_consistent(store) == 5


@pytest.mark.parametrize("database", [pytest.param("postgres_url", marks=pytest.mark.postgresql)])
def test_connection_lost_after_the_commit_changes_no_result(
    database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = OwnTransaction.commit

    def then_lost(transaction: OwnTransaction) -> None:
        original(transaction)
        transaction._driver.close()

    with Store(request.getfixturevalue(database)) as store:
        monkeypatch.setattr(OwnTransaction, "commit", then_lost)
        made = [create(store, key)() for key in "ab"]
        monkeypatch.undo()
        assert all(made)
        assert assert_consistent(store) == 2


def test_a_forked_child_has_a_queue_of_its_own(open_store: Opener) -> None:
    store = open_store()
    transaction = store._begin(None)
    transaction.set("t", "begun before", 1)
    store._committer._groups._leader = 1  # as another thread of the parent leaves it
    assert child(lambda: store._commit(transaction), seconds=60) == 0
    store._committer._groups._leader = None
    assert assert_consistent(store) == 1
