"""Clients of publishers with keys, and their topics."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from sqlalchemy import Connection

from pubsub_lib.api import Client
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import AlreadyExists, InvalidValueError, NotFound
from pubsub_lib.store import Store
from pubsub_lib.store.connection_executor import commit_or_drop
from tests.unit.store.test_commit import lost

T = TypeVar("T")
KEY = "a" * 40
OTHER = "A" * 40


def client(name: str, key: str = KEY, *topics: str) -> Client:
    return Client(name, key, frozenset(topics))


def test_clients_are_added_with_their_topics(store: Store) -> None:
    clients = store.directory.clients
    assert clients.all() == []
    clients.add(client("b", OTHER))
    clients.add(client("a", KEY, "t1", "t2", ALL))
    assert clients.all() == [client("a", KEY, "t1", "t2", ALL), client("b", OTHER)]


def test_client_name_and_key_are_unique(store: Store) -> None:
    clients = store.directory.clients
    clients.add(client("a"))
    for call in (clients.check, clients.add):
        with pytest.raises(AlreadyExists, match="client 'a' already"):
            call(client("a", OTHER))
        with pytest.raises(AlreadyExists, match="'a' has this key"):
            call(client("b"))
    clients.check(client("A", OTHER))
    assert [each.name for each in clients.all()] == ["a"]
    clients.add(client("A", OTHER))  # names and keys are bytes
    assert [each.name for each in clients.all()] == ["A", "a"]


@pytest.mark.parametrize(
    "bad", [client("a\0"), client(""), client("a", "short"), client("a", "~" * 40), client("a", KEY, "t\0")]
)
def test_invalid_client_is_refused(store: Store, bad: Client) -> None:
    clients = store.directory.clients
    for call in (clients.check, clients.add):
        with pytest.raises(InvalidValueError):
            call(bad)
    assert clients.all() == []


def test_topics_are_granted_and_revoked(store: Store) -> None:
    clients = store.directory.clients
    clients.add(client("a", KEY, "t1"))
    assert clients.grant("a", ["t1", "t2"]) == client("a", KEY, "t1", "t2")
    assert clients.grant("a", ["t2"]) == client("a", KEY, "t1", "t2")
    assert clients.revoke("a", ["t1"]) == client("a", KEY, "t2")
    with pytest.raises(NotFound, match="was not granted 't1'"):
        clients.revoke("a", ["t2", "t1"])
    assert clients.all() == [client("a", KEY, "t2")]  # nothing was revoked
    with pytest.raises(InvalidValueError):
        clients.grant("a", ["\0"])


def test_revoked_client_leaves_no_row(store: Store) -> None:
    clients = store.directory.clients
    clients.add(client("a", KEY, "t1"))
    assert clients.revoke("a") == client("a")
    assert clients.all() == []
    clients.add(client("a", OTHER))
    assert clients.all() == [client("a", OTHER)]


def test_client_added_again_with_the_same_key_and_topics_is_left(store: Store) -> None:
    clients = store.directory.clients
    for _ in range(2):
        clients.add(client("a", KEY, "t1"))
    with pytest.raises(AlreadyExists, match="client 'a' already"):
        clients.add(client("a", KEY, "t2"))
    assert clients.all() == [client("a", KEY, "t1")]


@pytest.mark.parametrize("took_effect", [True, False])
def test_change_of_clients_whose_commit_had_no_answer_is_done(
    took_effect: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[None] = []

    def lose(connection: Connection) -> None:
        if losses:
            losses.pop()
            if took_effect:
                commit_or_drop(connection)
            connection.invalidate()
            raise lost()
        commit_or_drop(connection)

    monkeypatch.setattr("pubsub_lib.store.store.commit_or_drop", lose)
    clients = store.directory.clients

    def after_a_loss(change: Callable[[], T]) -> T:
        losses.append(None)
        result = change()
        assert losses == []
        return result

    after_a_loss(lambda: clients.add(client("a", KEY, "t1", "t2")))
    assert clients.all() == [client("a", KEY, "t1", "t2")]
    assert after_a_loss(lambda: clients.grant("a", ["t3"])) == client("a", KEY, "t1", "t2", "t3")
    assert after_a_loss(lambda: clients.revoke("a", ["t1", "t2"])) == client("a", KEY, "t3")
    assert clients.all() == [client("a", KEY, "t3")]
    assert after_a_loss(lambda: clients.revoke("a")) == client("a")
    assert clients.all() == []


def test_unknown_client_is_not_found(store: Store) -> None:
    for change in (store.directory.clients.grant, store.directory.clients.revoke):
        with pytest.raises(NotFound, match="no client 'x'"):
            change("x", ["t"])
