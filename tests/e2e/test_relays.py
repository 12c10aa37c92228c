"""Relays as real processes: an origin service, relays below it, and replicas that listen to a relay alone."""

import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from tests.e2e.service_host import LONG, Host, Watched, done, order, pause_between_transactions, write
from tests.e2e.test_keys import pair_file

OPTIONS: dict[str, Any] = {
    # A replica does not come back to a parent that it has left, so a busy machine's pause must be no reason to leave.
    "max_idle_time": 2.0,
    "reading_age": 0.5,
    "round_trip": 0.5,
    "topics": "t0, t1",
    "discovery_interval": 0.5,
}


class Tree:
    """An origin service and two relays below it, on one database. ``close`` ends them all."""

    def __init__(self, folder: Path, database: str, options: Mapping[str, Any] = OPTIONS) -> None:
        self.origin = Host(folder / "api-1", database, "api-1", **options)
        self.relays = [Host(folder / name, database, name, role="relay", **options) for name in ("relay-1", "relay-2")]

    @property
    def below(self) -> Settings:
        """The settings of a replica that prefers the first relay."""
        return self.under(*self.relays)

    def under(self, *relays: Host) -> Settings:
        """The settings of a replica below these relays."""
        parents = tuple(each.settings.bind_address for each in relays)
        return msgspec.structs.replace(self.origin.settings, parents=parents)

    def open(self) -> Store:
        """The database, opened for a while: a restore needs that no process writes."""
        return Store(self.origin.database)

    def close(self) -> None:
        for each in (self.origin, *self.relays):
            each.close()


@pytest.fixture
def tree(tmp_path: Path, sqlite_url: str) -> Iterator[Tree]:
    made = Tree(tmp_path, sqlite_url)
    yield made
    made.close()


@pytest.fixture
def store(tree: Tree) -> Iterator[Store]:
    with Store(tree.origin.database) as store:
        yield store


def listens_to(watched: Watched, relay: Host) -> bool:
    """Whether the replica listens to this relay, which proves that it is fresh."""
    replica = watched.replica
    return replica.publishers == (relay.settings.bind_address,) and not replica.status().polling


def test_replica_moves_between_killed_relays_without_a_full_sync(tree: Tree, store: Store) -> None:
    one, two = tree.relays
    tree.origin.service()
    first = one.service()
    second = two.service()
    with Watched(tree.below) as watched:
        worker = tree.origin.worker()
        assert poll(lambda: listens_to(watched, one), LONG), watched.replica.status()
        before = one.metric("relayed_total", "links")
        watched.must_come_to(write(worker, 20), store)
        # A replica that read the database meanwhile may be earlier than the relay.
        assert poll(lambda: one.metric("relayed_total", "links") - before >= 20, LONG), "the changes came through it"
        order(worker, 200)
        first.kill()
        assert first.wait(LONG) == -signal.SIGKILL
        done(worker)
        watched.must_come_to(write(worker, 5), store)
        assert poll(lambda: listens_to(watched, two), LONG), watched.replica.status()
        one.service()  # again, with an empty memory
        second.kill()
        watched.must_come_to(write(worker, 5), store)
        assert poll(lambda: listens_to(watched, one), LONG), watched.replica.status()
        before = one.metric("relayed_total", "links")
        watched.must_come_to(write(worker, 5), store)
        assert poll(lambda: one.metric("relayed_total", "links") - before >= 5, LONG)


def test_goodbye_of_a_stopped_relay_moves_replicas_at_once(tree: Tree, store: Store) -> None:
    one, two = tree.relays
    tree.origin.service()
    first = one.service()
    two.service()
    with Watched(tree.below) as watched:
        worker = tree.origin.worker()
        assert poll(lambda: listens_to(watched, one), LONG), watched.replica.status()
        first.terminate()
        assert first.wait(LONG) == 0
        assert poll(lambda: listens_to(watched, two), LONG), watched.replica.status()
        # The lease of another one may just have ended on a busy machine.
        assert poll(lambda: [each.service for each in store.directory.live()] == ["api-1", "relay-2"], LONG)
        watched.must_come_to(write(worker, 5), store)


def test_replica_listens_through_two_relays_in_a_row(tree: Tree, store: Store) -> None:
    upper, lower = tree.relays
    lower.change("topics = t0, t1", f"topics = t0, t1\nparents = {upper.settings.bind_address}")
    tree.origin.service()
    upper.service()
    lower.service()
    with Watched(tree.under(lower)) as watched:
        worker = tree.origin.worker()
        assert poll(lambda: listens_to(watched, lower), LONG), watched.replica.status()
        before = lower.metric("relayed_total", "links")
        watched.must_come_to(write(worker, 20), store)
        assert poll(lambda: lower.metric("relayed_total", "links") - before >= 20, LONG)


def serve_syncs(host: Host) -> str:
    """Let a service answer syncs. Returns the URL."""
    host.change("[publisher_service]\n", "[publisher_service]\nserve_syncs = true\n")
    return f"http://127.0.0.1:{host.metrics_port}"


def test_replica_below_two_relays_syncs_from_them_without_a_database(tree: Tree, store: Store) -> None:
    upper, lower = tree.relays
    above = serve_syncs(tree.origin)
    upper.change("topics = t0, t1", f"topics = t0, t1\nsync_url = {above}")
    above = serve_syncs(upper)
    parent = upper.settings.bind_address
    lower.change("topics = t0, t1", f"topics = t0, t1\nparents = {parent}\nsync_url = {above}")
    settings = msgspec.structs.replace(tree.under(lower), store_url="", sync_url=serve_syncs(lower))
    tree.origin.service()
    worker = tree.origin.worker()
    position = write(worker, 20)
    upper.service()
    process = lower.service()
    with Watched(settings) as watched:
        watched.must_come_to(position, store)
        assert poll(lambda: listens_to(watched, lower), LONG), watched.replica.status()
        assert lower.metric("sync_channel_total", "answered") >= 1
        assert upper.metric("sync_channel_total", "answered") >= 1
        process.kill()
        process.wait(LONG)
        write(worker, 20)
        lower.service()  # again: without the links from before, so the replica reads all objects from it
        assert poll(lambda: not watched.differs(store), LONG), watched.replica.status()
        assert poll(lambda: listens_to(watched, lower), LONG), watched.replica.status()


def test_staleness_covers_every_missing_change_while_the_origin_is_stopped(tree: Tree, store: Store) -> None:
    origin = tree.origin.service()
    process = tree.relays[0].service()
    with Watched(tree.under(tree.relays[0])) as watched:
        replica = watched.replica
        assert poll(lambda: listens_to(watched, tree.relays[0]), LONG), replica.status()
        try:
            pause_between_transactions(origin, store)
            began = time.monotonic()
            with store.transaction() as tx:
                tx.set("item", "late", 1, topic="t0")
            committed = time.monotonic()
            until = committed + LONG
            while replica.get("item", "late") is None:
                assert time.monotonic() < until, replica.status()
                now = time.monotonic()
                # Read before the check that it is still missing: a replica that is fresher has the change.
                staleness = replica.status().staleness
                missing = replica.get("item", "late") is None
                assert not missing or staleness >= now - committed, (staleness, now - began)
                replica._engine.pause(0.05)
        finally:
            origin.send_signal(signal.SIGCONT)
        assert process.poll() is None
        watched.must_come_to(write(tree.origin.worker(), 5), store)


def test_replicas_below_a_relay_follow_a_restored_database(tree: Tree, tmp_path: Path) -> None:
    path = Path(tree.origin.database.removeprefix("sqlite:///"))
    backup = tmp_path / "backup.db"
    origin = tree.origin.service()
    tree.relays[0].service()
    with Watched(tree.under(tree.relays[0])) as watched:
        replica = watched.replica
        with tree.open() as direct:
            put(direct, "old")
            source, target = sqlite3.connect(path), sqlite3.connect(backup)
            source.backup(target)
            source.close()
            target.close()
            put(direct, "lost")
        assert poll(lambda: replica.get("item", "k") == "lost", LONG), replica.status()
        origin.terminate()
        assert origin.wait(LONG) == 0
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.move(backup, path)
        assert poll(lambda: replica.get("item", "k") == "old", LONG), replica.status()
        tree.origin.service()
        with tree.open() as direct:
            put(direct, "new")
            assert poll(lambda: replica.get("item", "k") == "new", LONG), replica.status()
            assert poll(lambda: listens_to(watched, tree.relays[0]), LONG), replica.status()
            assert not watched.differs(direct)


def test_keys_protect_both_hops_of_a_relay(tmp_path: Path, sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        files = {name: pair_file(tmp_path, store, name, "t0", "t1") for name in ("relay-1", "agent")}
        keys = {**OPTIONS, "keys": "true", "default_topic": "false", "clients_interval": 0.5}
        origin = Host(tmp_path / "api-1", sqlite_url, "api-1", **keys)
        relay = Host(
            tmp_path / "relay-1", sqlite_url, "relay-1", role="relay", client_key_file=files["relay-1"], **keys
        )
        parents = (relay.settings.bind_address,)
        agent = msgspec.structs.replace(origin.settings, parents=parents, client_key_file=files["agent"])
        try:
            origin.service()
            relay.service()
            with Watched(agent) as watched:
                assert poll(lambda: listens_to(watched, relay), LONG), watched.replica.status()
                before = relay.metric("relayed_total", "links")
                watched.must_come_to(write(origin.worker(), 20), store)
                assert poll(lambda: relay.metric("relayed_total", "links") - before >= 20, LONG)
        finally:
            origin.close()
            relay.close()


def put(store: Store, value: str) -> None:
    with store.transaction() as tx:
        tx.set("item", "k", value, topic="t0")
