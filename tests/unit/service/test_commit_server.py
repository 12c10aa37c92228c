"""The service commits for workers: each keeps its own conditions, point, links and error."""

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import poll
from sqlalchemy import text

from pubsub_lib import Settings, Store
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link
from pubsub_lib.errors import AlreadyExists, ConfigError, NotFound, StoreError, TransportError, VersionMismatch
from pubsub_lib.service.commit_server import CommitServer
from pubsub_lib.store import host_messages, url
from pubsub_lib.store.commit import Committer
from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.group_commit import Announce, Attempt
from pubsub_lib.store.host_commit import database_of, socket_of
from pubsub_lib.store.verbs import Operation
from pubsub_lib.store.writer import Work
from tests.e2e.store_checks import assert_consistent
from tests.unit.service.workers import of_host, serving
from tests.unit.store.test_commit import lost
from tests.unit.world import LONG


@pytest.fixture
def config(database_url: str, tmp_path: Path) -> Settings:
    return of_host(database_url, tmp_path)


@pytest.fixture
def lone(sqlite_url: str, tmp_path: Path) -> Settings:
    """For tests in which the database does not matter."""
    return of_host(sqlite_url, tmp_path)


@pytest.fixture
def server(config: Settings) -> Iterator[CommitServer]:
    with serving(config) as server:
        yield server


def put(store: Store, key: str, topic: str = "x", value: object = 1) -> Any:
    with store.transaction() as tx:
        tx.set("t", key, value, topic=topic)
    return tx.commit


class Gate:
    """Holds the first group, which has one request, until ``number`` further requests wait."""

    def __init__(self, server: CommitServer, number: int) -> None:
        self.sizes: list[int] = []
        self._held = threading.Event()
        self._server, self._number = server, number
        self._store = server._store
        server._store = self

    def commit_group(self, works: Sequence[Work], announce: Announce) -> list[Attempt]:
        self.sizes.append(len(works))
        self._held.set()
        server = self._server
        while len(self.sizes) == 1 and len(server._queue) < self._number:
            for key, _ in server._selector.select(0.05):
                key.data()
        return self._store.commit_group(works, announce)

    def run(self, *doing: Callable[[], Any]) -> list[Future[Any]]:
        """Run each on a thread: the others while the first is held."""
        with ThreadPoolExecutor(len(doing)) as pool:
            futures: list[Future[Any]] = [pool.submit(doing[0])]
            assert self._held.wait(60)
            return futures + [pool.submit(each) for each in doing[1:]]


@pytest.mark.quick_variants(2)
def test_works_of_several_stores_share_a_transaction(config: Settings, server: CommitServer) -> None:
    gate = Gate(server, 7)
    stores = [Store(config) for _ in range(8)]
    seen: list[Link] = []
    try:
        for store in stores:
            store.on_commit(seen.extend)
        doing = [partial(put, store, f"k{n}", f"topic {n % 3}") for n, store in enumerate(stores)]
        made = [each.result() for each in gate.run(*doing)]
        assert gate.sizes == [1, 7]
        assert sorted(each.point.position for each in made) == list(range(1, 9))
        assert sorted(link.point.position for link in seen) == list(range(1, 9))
        assert {link.origin for link in seen} == {"api-1"}
        assert sorted(seen, key=lambda link: link.point.position) == [
            link for each in sorted(made, key=lambda each: each.point.position) for link in each.links
        ]
        stored, _, _ = stores[0].read_links(None, 100)
        assert [msgspec.structs.replace(each, written_at=0.0) for each in stored] == [
            msgspec.structs.replace(each, written_at=0.0) for each in sorted(seen, key=lambda each: each.point.position)
        ]
        assert all(stores[0].committed(each.nonce) for each in made)
        assert server.counters()["requests"] == 8
        assert assert_consistent(stores[0]) == 8
    finally:
        for store in stores:
            store.close()


def test_a_violated_condition_leaves_the_others(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        put(store, "there")

        def stale() -> None:
            with store.transaction() as tx:
                tx.set("t", "stale", 1, version=7)

        def create() -> None:
            with store.transaction() as tx:
                tx.create("t", "there", 1)

        def delete() -> None:
            with store.transaction() as tx:
                tx.delete("t", "gone")

        doing: list[Callable[[], object]] = [lambda: put(store, "a"), stale, create, delete, lambda: put(store, "b")]
        errors = [type(each.exception()) for each in Gate(server, 4).run(*doing)]
        assert errors == [type(None), VersionMismatch, AlreadyExists, NotFound, type(None)]
        assert server.counters()["requests"] == 6
        assert {each.key for each in store.objects()} == {"there", "a", "b"}
        assert assert_consistent(store) == 3


def test_transaction_that_changes_nothing_has_no_commit(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        assert put(store, "a") is not None
        assert put(store, "a") is None
        assert server.counters()["requests"] == 2
        assert assert_consistent(store) == 1


def test_overtaken_read_runs_the_function_again(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        put(store, "n", value={"n": 0})

        def count(tx: Any) -> None:
            tx.set("t", "n", {"n": tx.get("t", "n")["n"] + 1})

        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(store.write, count) for _ in range(12)]:
                each.result()
        assert store.get("t", "n") == {"n": 12}
        assert assert_consistent(store) == 13


def test_reader_sees_its_own_commit_at_once(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        for number in range(5):
            commit = put(store, "k", value=number)
            assert store.get("t", "k") == number
            assert store.read_heads(["x"]).topics["x"].point == commit.point


def test_links_of_workers_that_ask_for_it_are_published_in_order(config: Settings) -> None:
    published: list[Link] = []
    unpublished: list[Link] = []
    seen: list[Link] = []
    with serving(config, published.extend), Store(config) as asks, Store(config) as other:
        asks.on_commit(unpublished.extend, unless_published=True)
        other.on_commit(seen.extend)
        made = [put(asks, "a"), put(asks, "b", "y"), put(other, "c"), put(asks, "a", value=2)]
        assert put(asks, "a", value=2) is None
        with pytest.raises(AlreadyExists), asks.transaction() as tx:
            tx.create("t", "a", 1)
    assert [each.published for each in made] == [True, True, False, True]
    # The last answer is sent before its links are published; the server's end has waited for it.
    assert published == [link for each in made if each.published for link in each.links]
    assert unpublished == []
    assert seen == made[2].links


def test_worker_publishes_what_a_server_without_publisher_commits(config: Settings, server: CommitServer) -> None:
    unpublished: list[Link] = []
    with Store(config) as store:
        store.on_commit(unpublished.extend, unless_published=True)
        made = put(store, "a")
    assert not made.published
    assert unpublished == made.links
    assert server.counters()["requests"] == 1


def test_worker_publishes_what_is_committed_while_the_service_stops(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Link] = []
    unpublished: list[Link] = []
    original = OwnTransaction.commit
    with serving(config, published.extend) as server, Store(config) as store:

        def commit(transaction: OwnTransaction) -> None:
            server._closing = True
            original(transaction)

        monkeypatch.setattr(OwnTransaction, "commit", commit)
        store.on_commit(unpublished.extend, unless_published=True)
        made = put(store, "a")
        assert not made.published
        assert unpublished == made.links
    assert published == []


@pytest.mark.parametrize("after", [False, True])
def test_lost_commit_of_the_service_is_looked_up(
    after: bool, config: Settings, server: CommitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = OwnTransaction.commit
    server._publish = lambda links: None

    def commit(transaction: OwnTransaction) -> None:
        monkeypatch.undo()
        if after:
            original(transaction)
        transaction._drop()
        raise lost()

    unpublished: list[Link] = []
    with Store(config) as store:
        put(store, "first")
        monkeypatch.setattr(OwnTransaction, "commit", commit)
        store.on_commit(unpublished.extend, unless_published=True)
        made = put(store, "k")
        assert unpublished == made.links
        assert made.point == store.read_heads([]).store
        assert assert_consistent(store) == 2


def test_store_with_hooks_commits_by_itself(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        remove = store.before_write(lambda proposed: {"hooked": True})
        put(store, "a")
        assert server.counters()["requests"] == 0
        assert store.get("t", "a") == {"hooked": True}
        remove()
        put(store, "b")
        assert server.counters()["requests"] == 1


class Row(msgspec.Struct):
    n: int
    kind: str = "x"


def test_update_of_a_typed_table_is_checked_by_its_own_process(config: Settings, server: CommitServer) -> None:
    with Store(config, tables={"t": Row}) as store:
        put(store, "a", value=Row(1))
        assert server.counters()["requests"] == 1
        with store.transaction() as tx:
            tx.update("t", "a", {"n": 2})
        assert server.counters()["requests"] == 1
        assert store.get("t", "a") == Row(2)


def test_large_transaction_is_committed_by_its_own_process(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        put(store, "a", value="x" * host_messages.MAX_REQUEST)
        assert server.counters()["requests"] == 0
        assert assert_consistent(store) == 1


def test_transaction_whose_links_are_too_large_is_declined(
    config: Settings, server: CommitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(config) as store:
        put(store, "a", value={"long": "x" * 5000})
        monkeypatch.setattr(host_messages, "MAX_REPLY", 4000)
        with store.transaction() as tx:
            tx.update("t", "a", {"n": 1})
        assert poll(lambda: server.counters()["declined"] == 1, LONG), "it is counted after the answer"
        put(store, "b")
        assert server.counters()["requests"] == 2
        assert assert_consistent(store) == 3


def test_worker_that_leaves_before_the_commit_is_taken_out_of_its_group(config: Settings, server: CommitServer) -> None:
    gate = Gate(server, 2)
    with Store(config) as store, connected(config) as gone:
        greet(gone, config)
        work = Work([Operation("set", "t", "lost", b"1")], {}, 5, "api-1")

        original = gate._store.commit_group

        def leave(works: Sequence[Work], announce: Announce) -> list[Attempt]:
            if len(works) == 2:
                gone.shutdown(socket.SHUT_RDWR)
            return original(works, announce)

        gate._store.commit_group = leave  # type: ignore[method-assign]
        request = host_messages.encode(host_messages.request_of(work))
        futures = gate.run(partial(put, store, "a"), partial(put, store, "b"), partial(gone.sendall, request))
        assert all(each.result() for each in futures[:2])
        assert server.counters()["withdrawn"] == 1
        assert gate.sizes == [1, 2, 1]
        assert not store.committed(5)
        assert assert_consistent(store) == 2


def connected(config: Settings) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(30)
    client.connect(str(socket_of(config)))
    return client


def greet(client: socket.socket, config: Settings, **changes: Any) -> host_messages.Reply:
    hello = host_messages.hello(database_of(url.parse(config.store_url)), config.limits)
    client.sendall(host_messages.encode(msgspec.structs.replace(hello, **changes)))
    (body,) = host_messages.Frames(10**6).feed(client.recv(1000))
    return host_messages.decode_reply(body)


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 20,
        (3).to_bytes(4, "big") + b"abc",
        (5).to_bytes(4, "big") + b"\x81\xa1\xff\x01\x01",  # text that is no UTF-8
        host_messages.encode(host_messages.request_of(Work([], {}, 1, ""))),
        host_messages.encode(host_messages.Welcome()),
    ],
)
def test_invalid_message_ends_its_connection_only(sent: bytes, lone: Settings) -> None:
    with serving(lone) as server, Store(lone) as store, connected(lone) as client:
        put(store, "a")
        client.sendall(sent)
        assert client.recv(10) == b""
        put(store, "b")
        assert server.counters()["invalid"] == 1
        assert server.counters()["requests"] == 2


def test_request_before_the_answer_to_another_is_invalid(lone: Settings) -> None:
    request = host_messages.encode(host_messages.request_of(Work([], {}, 1, "")))
    with serving(lone) as server, connected(lone) as client:
        assert greet(client, lone) == host_messages.Welcome()
        client.sendall(2 * request)
        while client.recv(100):
            pass
        assert server.counters()["invalid"] == 1


@pytest.mark.parametrize(
    "operation",
    [
        Operation("set", "t", "k", b"{", "x"),
        Operation("set", "t", "k", b'{"b":1,"a":2}', "x"),
        Operation("set", "t", "k\0", b"1", "x"),
        Operation("set", "t" * 300, "k", b"1", "x"),
        Operation("set", "t", "k", b"1", "x" * 300),
        Operation("set", "t", "k", b"[" * 70 + b"]" * 70, "x"),
    ],
)
def test_request_that_no_store_records_is_not_written(operation: Operation, config: Settings) -> None:
    """Such a row would end every sync of its topic."""
    with serving(config) as server, Store(config) as store, connected(config) as client:
        put(store, "a")
        assert greet(client, config) == host_messages.Welcome()
        client.sendall(host_messages.encode(host_messages.request_of(Work([operation], {}, 77, "api-1"))))
        assert client.recv(100) == b""
        put(store, "b")
        assert (server.counters()["invalid"], server.counters()["requests"]) == (1, 2)
        assert not store.committed(77)
        assert assert_consistent(store) == 2


def test_group_is_committed_while_no_connection_can_be_accepted(
    lone: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = socket.socket.accept
    full = threading.Event()

    def accept(listener: socket.socket) -> Any:
        if full.is_set():
            raise OSError(errno.EMFILE, "Too many open files")
        return real(listener)

    with serving(lone) as server, Store(lone) as store:
        put(store, "a")
        monkeypatch.setattr(socket.socket, "accept", accept)
        full.set()
        with connected(lone) as waiting:
            assert poll(lambda: server.counters()["errors"] >= 1, 60), "it is tried again and again"
            put(store, "b")
            assert server.counters()["requests"] == 2
            full.clear()
            assert greet(waiting, lone) == host_messages.Welcome()
    assert "cannot be accepted (Too many open files); raise the limit of open files" in caplog.text


def test_worker_of_another_version_is_refused(lone: Settings) -> None:
    with serving(lone) as server, connected(lone) as client:
        reply = greet(client, lone, version=99)
        assert isinstance(reply, host_messages.Refused)
        assert client.recv(1) == b""  # it is counted before the connection is closed
        assert server.counters()["refused"] == 1


def test_worker_with_other_limits_commits_by_itself(lone: Settings, caplog: pytest.LogCaptureFixture) -> None:
    other = msgspec.structs.replace(lone, limits=Limits(max_value_bytes=1000))
    with serving(lone) as server, Store(other) as store:
        put(store, "a")
        assert poll(lambda: server.counters()["refused"] == 1, LONG), "it is counted after the answer"
        assert assert_consistent(store) == 1
    assert "has max_value_bytes = 262144 and this program 1000" in caplog.text


def test_connections_above_the_maximum_are_closed(lone: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.service.commit_server.MAX_CLIENTS", 1)
    with serving(lone) as server, connected(lone) as first, connected(lone) as second:
        assert greet(first, lone) == host_messages.Welcome()
        assert second.recv(10) == b""
        assert server.counters()["refused"] == 1


OTHER_USER = 65534
STRANGER = f"""
import os, socket, sys
os.chdir(sys.argv[1])  # the folders above are closed to other users
os.setgroups([])
os.setgid({OTHER_USER})
os.setuid({OTHER_USER})
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
    client.settimeout(30)
    client.connect(sys.argv[2])
    print(client.recv(1))
"""
"""A program of another user, which connects and prints the first byte that it receives."""


def test_connection_of_another_user_is_closed_although_the_permissions_admit_it(lone: Settings) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a program of another user")
    path = socket_of(lone)
    with serving(lone) as server:
        stranger = [sys.executable, "-I", "-S", "-c", STRANGER, str(path.parent), path.name]
        denied = subprocess.run(stranger, capture_output=True, text=True, timeout=LONG, check=False)
        assert "PermissionError" in denied.stderr
        path.parent.chmod(0o755)
        path.chmod(0o666)
        refused = subprocess.run(stranger, capture_output=True, text=True, timeout=LONG, check=False)
        assert (refused.stdout, refused.stderr) == ("b''\n", "")
        assert server.counters()["refused"] == 1
        with connected(lone) as own:
            assert greet(own, lone) == host_messages.Welcome()


def test_socket_has_one_service_and_is_private(lone: Settings) -> None:
    path = socket_of(lone)
    with serving(lone):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(TransportError, match=f"held by process {os.getpid()}"), serving(lone):
            pass
    assert not path.exists()
    with serving(lone):
        assert path.exists()


def test_file_of_a_dead_service_is_replaced(lone: Settings) -> None:
    path = socket_of(lone)
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with serving(lone) as server, Store(lone) as store:
        put(store, "a")
        assert server.counters()["requests"] == 1


def test_path_that_is_too_long_is_refused(lone: Settings) -> None:
    with pytest.raises(ConfigError, match="the system allows 107; set publisher_multiproc_socket"):
        Store(msgspec.structs.replace(lone, multiproc_socket="/" + "x" * 101))


def test_error_of_the_program_ends_no_later_request(lone: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[Attempt]:
        monkeypatch.undo()
        raise RuntimeError("broken")

    with serving(lone) as server, Store(lone) as store:
        put(store, "a")
        monkeypatch.setattr(Committer, "run_group", broken)
        put(store, "b")  # by its own connection
        assert poll(lambda: server.counters()["errors"] == 1, LONG), "it is counted after the connection was closed"
        assert assert_consistent(store) == 2


def test_closing_answers_the_group_and_leaves_the_rest_to_the_workers(lone: Settings) -> None:
    with Store(lone) as store, ThreadPoolExecutor(2) as pool:
        with serving(lone) as server:
            held, go = threading.Event(), threading.Event()
            original = server._store.commit_group

            def hold(works: Sequence[Work], announce: Announce) -> list[Attempt]:
                held.set()
                assert go.wait(60)
                return original(works, announce)

            server._store.commit_group = hold  # type: ignore[method-assign]
            first = pool.submit(put, store, "a")
            assert held.wait(60)
            assert server.running_for(1e12) > 0
            second = pool.submit(put, store, "b")
            server._closing = True
            go.set()
        assert first.result()
        assert second.result()
        assert server.counters()["requests"] == 1
        assert server.running_for(1e12) == 0
        assert assert_consistent(store) == 2


def test_error_of_the_database_for_one_work_leaves_the_others(config: Settings, server: CommitServer) -> None:
    with Store(config) as store:
        put(store, "old", "lost")
        with store._writers.begin() as connection:
            connection.execute(text("DELETE FROM pubsub_topics WHERE topic = 'lost'"))
            connection.execute(text("DELETE FROM pubsub_links WHERE topic = 'lost'"))
        doing = [("a", "x"), ("b", "x"), ("new", "lost"), ("c", "x")]
        futures = Gate(server, 3).run(*[partial(put, store, *each) for each in doing])
        assert [type(each.exception()) for each in futures] == [type(None), type(None), StoreError, type(None)]
        assert {each.key for each in store.objects(topic="x")} == {"a", "b", "c"}
