"""``wait_for`` and histories: the database of a replica is restored, and lost commits never count as applied."""

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import AsyncReplica, Event, HistoryChange, Replica, Settings, Store
from pubsub_lib.core.model import Point, SyncAnswer, Want
from pubsub_lib.errors import ClosedError, HistoryChanged, OutcomeUnknown, StoreUnavailable, WaitTimeout
from pubsub_lib.replica import readback
from pubsub_lib.replica.readback import Committed, HistoryReader
from tests.unit.core.builders import History, envelope
from tests.unit.world import settings

LONG = longest(60.0)
TOPICS = pytest.mark.parametrize("topics", [["a"], None], ids=["topic", "everything"])


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    return settings(sqlite_url, driver="db_polling_pubsub_driver", driver_options={}, paranoid=False)


def put(config: Settings, value: object, times: int = 1) -> Committed:
    with Store(config) as store:
        for _ in range(times):
            with store.transaction() as tx:
                tx.set("t", "k", value, topic="a")
            value = f"{value}!"
    assert tx.commit is not None
    return tx.commit


class Backups:
    """Backup and restore of the database's file, as SQLite's manual describes it."""

    def __init__(self, config: Settings) -> None:
        self._path = Path(config.store_url.removeprefix("sqlite:///"))
        self._copy = self._path.with_suffix(".backup")

    def take(self) -> None:
        source, target = sqlite3.connect(self._path), sqlite3.connect(self._copy)
        source.backup(target)
        source.close()
        target.close()

    @property
    def url(self) -> str:
        """The database URL of the copy."""
        return f"sqlite:///{self._copy}"

    def put_back(self) -> None:
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        shutil.copy(self._copy, self._copy.with_suffix(".new"))
        self._copy.with_suffix(".new").replace(self._path)


def undone(config: Settings) -> Committed:
    """A commit that the database lost: a backup of before was put back."""
    backups = Backups(config)
    put(config, "old")
    backups.take()
    lost = put(config, "lost")
    backups.put_back()
    return lost


@contextmanager
def running(config: Settings, topics: Sequence[str] | None) -> Iterator[Replica]:
    with Replica(config, topics) as replica:
        replica.wait_synced(LONG)
        yield replica


@TOPICS
def test_wait_for_a_commit_that_a_restore_undid_raises_history_changed(
    config: Settings, topics: list[str] | None
) -> None:
    backups = Backups(config)
    put(config, "old")
    backups.take()
    with running(config, topics) as replica:
        lost = put(config, "lost")
        replica.wait_for(lost, LONG)
        backups.put_back()
        again = put(config, "again", times=3)
        replica.wait_for(again, LONG)
        assert replica.get("t", "k") == "again!!"
        with pytest.raises(HistoryChanged, match=f"position {lost.point.position} is not in"):
            replica.wait_for(lost, LONG)
        with pytest.raises(HistoryChanged):
            replica.wait_handled(lost, LONG)


@TOPICS
def test_wait_for_a_lost_commit_ignores_a_new_commit_at_the_same_position(
    config: Settings, topics: list[str] | None
) -> None:
    lost = undone(config)
    with running(config, topics) as replica:
        again = put(config, "again")
        assert again.point.position == lost.point.position
        replica.wait_for(again, LONG)
        with pytest.raises(HistoryChanged):
            replica.wait_for(lost, LONG)


@TOPICS
def test_wait_for_a_lost_commit_raises_without_a_later_commit(config: Settings, topics: list[str] | None) -> None:
    lost = undone(config)
    with running(config, topics) as replica, pytest.raises(HistoryChanged):
        replica.wait_for(lost, LONG)


@TOPICS
def test_wait_for_a_commit_of_the_new_history_in_a_replica_of_the_old_history(
    config: Settings, topics: list[str] | None
) -> None:
    backups = Backups(config)
    put(config, "old")
    backups.take()
    with running(config, topics) as replica:
        replica.wait_for(put(config, "lost", times=5), LONG)
        backups.put_back()
        commit = put(config, "new")  # at a position that the replica has passed
        replica.wait_for(commit, LONG)
        assert replica.get("t", "k") == "new"


@TOPICS
def test_wait_for_a_commit_before_the_replicas_start_succeeds(config: Settings, topics: list[str] | None) -> None:
    early = put(config, "early")
    put(config, "late", times=3)
    with running(config, topics) as replica:
        replica.wait_for(early, LONG)
        replica.wait_handled(early, LONG)


def test_wait_for_a_trimmed_commit_raises_outcome_unknown(config: Settings) -> None:
    early = put(config, "early")
    put(config, "late", times=3)
    with Store(config) as store:
        store.trim(keep_links=1)
    with running(config, ["a"]) as replica, pytest.raises(OutcomeUnknown) as raised:
        replica.wait_for(early, LONG)
    assert raised.value.nonce == early.point.nonce


class Reader:
    """Only the syncs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        return self._store.read_sync(wants)


class Moody(Store):
    """A store whose first queries fail."""

    refusals = 1

    def holds(self, topic: str, points: Sequence[Point]) -> list[bool | None]:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("the database is away")
        return super().holds(topic, points)


def test_wait_for_queries_an_unavailable_store_again_until_the_timeout(config: Settings) -> None:
    early = put(config, "early")
    put(config, "late", times=3)
    with Moody(config) as store, Replica(config, ["a"], store=store) as replica:
        replica.wait_synced(LONG)
        replica.wait_for(early, LONG)
        assert store.refusals == 0
        store.refusals = 10**9
        with pytest.raises(WaitTimeout, match="the database is away"):
            replica.wait_for(early, 0.0)


def test_messages_do_not_end_the_pause_after_a_failed_query(config: Settings) -> None:
    early = put(config, "early")
    put(config, "late", times=3)
    (link,) = History().commit(("t", "k", "1"))
    with Moody(config) as store, Replica(config, ["a"], store=store) as replica:
        replica.wait_synced(LONG)
        store.refusals = 10**9
        over = threading.Event()

        def receive() -> None:
            while not over.wait(0.001):
                replica._engine.on_envelope(envelope(link))

        receiving = threading.Thread(target=receive)
        receiving.start()
        try:
            with pytest.raises(WaitTimeout, match="the database is away"):
                replica.wait_for(early, 0.3)
        finally:
            over.set()
            receiving.join()
        assert 10**9 - store.refusals <= 2  # at the begin and at the timeout


def test_close_ends_the_pause_after_a_failed_query(config: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    early = put(config, "early")
    put(config, "late", times=3)
    monkeypatch.setattr(readback, "RETRY", 10 * LONG)
    ends: SimpleQueue[str] = SimpleQueue()

    def wait() -> None:
        try:
            replica.wait_for(early)
        except ClosedError:
            ends.put("closed")

    with Moody(config) as store, Replica(config, ["a"], store=store) as replica:
        replica.wait_synced(LONG)
        store.refusals = 10**9
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert poll(lambda: store.refusals < 10**9, LONG)
    assert ends.get(timeout=LONG) == "closed"
    waiting.join()


def test_async_wait_for_an_unavailable_store_ends_at_its_timeout(config: Settings) -> None:
    """The retries must not go on, and must not follow one another without a pause."""
    early = put(config, "early")
    put(config, "late", times=3)
    queries = 20
    with Moody(config) as store:

        async def main() -> None:
            async with AsyncReplica(config, ["a"], store=store) as replica:
                await replica.wait_synced(LONG)
                await replica.wait_for(early, LONG)
                assert store.refusals == 0
                store.refusals = queries
                for wait in (replica.wait_for, replica.wait_handled):
                    with pytest.raises(WaitTimeout, match="the database is away"):
                        await wait(early, 0.05)

        asyncio.run(main())
        assert 0 < store.refusals < queries  # a wait without end would succeed after them


def test_wait_for_topics_that_a_lost_commit_did_not_write_to_raises_history_changed(config: Settings) -> None:
    backups = Backups(config)
    with Store(config) as store, store.transaction() as tx:
        tx.set("t", "other", 1, topic="b")
    put(config, "old")
    backups.take()
    lost = put(config, "lost")
    backups.put_back()
    kept = put(config, "again")
    with running(config, ["a", "b"]) as replica:
        replica.wait_for(kept, LONG, topics=["b"])
        with pytest.raises(HistoryChanged):
            replica.wait_for(lost, LONG, topics=["b"])


def test_wait_for_topics_without_a_trimmed_commit_raises_outcome_unknown(config: Settings) -> None:
    with Store(config) as store:
        commit = put(config, "old")
        with store.transaction() as tx:
            tx.set("t", "other", 1, topic="b")
        put(config, "new", times=3)
        store.trim(keep_links=1)
    with running(config, ["b"]) as replica, pytest.raises(OutcomeUnknown):
        replica.wait_for(commit, LONG, topics=["b"])


def test_replica_without_a_database_decides_only_what_its_own_chains_show(config: Settings) -> None:
    early = put(config, "early")
    put(config, "late", times=3)
    with Store(config) as store, Replica(config, ["a", "b"], store=Reader(store)) as replica:
        replica.wait_synced(LONG)
        commit = put(config, "new")
        replica.wait_for(commit, LONG)
        replica.wait_for(commit, LONG, topics=["a", "b"])
        for given, topics in ((commit, ["b"]), (early, ["a"]), (early, None)):
            with pytest.raises(OutcomeUnknown, match="this replica has no database to query; set store_url") as raised:
                replica.wait_for(given, LONG, topics=topics)
            assert raised.value.nonce == given.point.nonce


def test_replica_without_a_database_reports_no_undone_commit_as_applied(config: Settings) -> None:
    lost = undone(config)
    put(config, "again", times=3)
    with Store(config) as store, Replica(config, ["a", "b"], store=Reader(store)) as replica:
        replica.wait_synced(LONG)
        with pytest.raises(OutcomeUnknown, match="set store_url"):
            replica.wait_for(lost, LONG, topics=["b"])


def test_a_store_is_a_history_reader(config: Settings) -> None:
    with Store(config) as store:
        assert isinstance(store, HistoryReader)


@TOPICS
def test_async_replica_waits_in_the_same_way(config: Settings, topics: list[str] | None) -> None:
    backups = Backups(config)
    early = put(config, "early")
    put(config, "old")
    backups.take()
    lost = put(config, "lost")
    backups.put_back()

    async def main() -> Any:
        async with AsyncReplica(config, topics) as replica:
            await replica.wait_synced(LONG)
            await replica.wait_for(early, LONG)
            await replica.wait_for(await asyncio.to_thread(put, config, "again"), LONG)
            with pytest.raises(HistoryChanged):
                await replica.wait_for(lost, LONG)
            with pytest.raises(HistoryChanged):
                await replica.wait_handled(lost, LONG)
            return await replica.get("t", "k")

    assert asyncio.run(main()) == "again"


def test_wait_for_a_number_ignores_the_history(config: Settings) -> None:
    """As documented: only a commit identifies a history."""
    lost = undone(config)
    put(config, "again")
    with running(config, ["a"]) as replica:
        replica.wait_for(lost.point.position, LONG)
        assert poll(lambda: bool(replica.get("t", "k") == "again"), LONG)


@TOPICS
def test_a_handler_is_notified_once_before_versions_go_back(config: Settings, topics: list[str] | None) -> None:
    backups = Backups(config)
    put(config, "old")
    backups.take()
    calls: list[Any] = []
    with running(config, topics) as replica:
        replica.on("t", lambda event: calls.append(event.version), on_history_changed=calls.append)
        lost = put(config, "lost", times=3)
        replica.wait_handled(lost, LONG)
        again = put(msgspec.structs.replace(config, store_url=backups.url), "again")
        backups.put_back()  # with the new commit, so that no poll comes between
        replica.wait_handled(again, LONG)
    (notice,) = [each for each in calls if isinstance(each, HistoryChange)]
    assert notice.points == {"" if topics is None else "a": (lost.point, again.point)}
    before, after = calls[: calls.index(notice)], calls[calls.index(notice) + 1 :]
    assert (before[0], before[-1], after) == (1, lost.point.position, [again.point.position])
    assert before == sorted({*before})  # a poll reads one version or several, and the handler gets the last of them


def test_a_coroutine_is_notified_too(config: Settings) -> None:
    backups = Backups(config)
    put(config, "old")
    backups.take()
    calls: list[object] = []

    async def handle(event: Event) -> None:
        calls.append(event.version)

    async def notice(change: HistoryChange) -> None:
        calls.append(change)

    async def main() -> None:
        async with AsyncReplica(config, ["a"]) as replica:
            await replica.wait_synced(LONG)
            await replica.on("t", handle, on_history_changed=notice)
            await replica.wait_handled(put(config, "lost", times=2), LONG)
            backups.put_back()
            await replica.wait_handled(put(config, "again"), LONG)

    asyncio.run(main())
    (notified,) = (number for number, each in enumerate(calls) if isinstance(each, HistoryChange))
    # The replica may read the old object again before the new commit.
    assert {type(each) for each in calls[notified + 1 :]} == {int}
