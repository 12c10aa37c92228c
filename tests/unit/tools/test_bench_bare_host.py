"""The bare side of ``group_commit = host`` in ``tools/bench --case e2e``: its rows, and its groups."""

import socket
import threading
from collections.abc import Sequence
from contextlib import closing

import msgspec
import psycopg
import pytest
from _bench.bare_groups import BareGroups, Transaction
from _bench.e2e.bare_host import _LENGTH, Gathering
from sqlalchemy import make_url

from pubsub_lib import Settings, Store


def transaction(number: int, *values: bytes) -> Transaction:
    return Transaction(f"t{number}", [f"{number}-{each}" for each in range(len(values))], list(values))


@pytest.mark.postgresql
def test_a_group_writes_the_rows_of_all_its_transactions(postgres_url: str) -> None:
    with Store(Settings(store_url=postgres_url)), closing(BareGroups(make_url(postgres_url))) as groups:
        groups.commit([transaction(1, b"a", b"b"), transaction(2, b"c")])
        groups.commit([transaction(2, b"d")])
    url = make_url(postgres_url)
    with psycopg.connect(host=url.host, port=url.port, user=url.username, dbname=url.database) as database:
        objects = database.execute("SELECT object_key, topic, version, value FROM pubsub_objects ORDER BY version")
        heads = database.execute("SELECT topic, position FROM pubsub_topics ORDER BY topic")
        links = database.execute("SELECT topic, position, changes FROM pubsub_links ORDER BY position")
        counter = database.execute("SELECT position FROM pubsub_store")
        assert objects.fetchall() == [("1-0", "t1", 1, b"a"), ("1-1", "t1", 2, b"b"), ("2-0", "t2", 4, b"d")]
        assert heads.fetchall() == [("t1", 2), ("t2", 4)]
        assert links.fetchall() == [("t1", 2, b"ab"), ("t2", 3, b"c"), ("t2", 4, b"d")]
        assert counter.fetchall() == [(4,)]


@pytest.mark.postgresql
def test_a_group_that_fails_raises(postgres_url: str) -> None:
    with Store(Settings(store_url=postgres_url)):
        pass  # the schema
    twice = [transaction(1, b"a"), transaction(1, b"b")]
    with closing(BareGroups(make_url(postgres_url))) as groups, pytest.raises(psycopg.errors.CardinalityViolation):
        groups.commit(twice)


def test_transactions_that_wait_are_committed_and_sent_together() -> None:
    pairs = [socket.socketpair(socket.AF_UNIX) for _ in range(3)]
    committed: list[list[str]] = []
    sent: list[bytes] = []
    begun, go = threading.Event(), threading.Event()

    def commit(group: Sequence[Transaction]) -> None:
        committed.append([each.topic for each in group])
        begun.set()
        assert go.wait(10)

    thread = threading.Thread(target=Gathering([server for _, server in pairs], commit, sent.append).run)
    thread.start()

    def send(number: int) -> None:
        body = msgspec.msgpack.encode(transaction(number, b"v"))
        pairs[number][0].sendall(_LENGTH.pack(len(body)) + body)

    send(0)
    assert begun.wait(10)
    send(1)
    send(2)
    go.set()
    for client, _ in pairs:
        assert client.recv(1) == b"\1"
    for client, _ in pairs:
        client.close()
    thread.join(10)
    assert not thread.is_alive()
    for _, server in pairs:
        server.close()
    assert sorted(name for group in committed for name in group) == ["t0", "t1", "t2"]
    assert committed[0] == ["t0"]
    assert len(sent) == len(committed)
    assert [key for message in sent for key, _ in msgspec.msgpack.decode(message)] == [
        f"{name[1:]}-0" for group in committed for name in group
    ]
