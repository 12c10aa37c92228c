"""Clients of publishers with keys, and their topics."""

import pytest

from pubsub_lib.api import Client
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import AlreadyExists, InvalidValueError, NotFound
from pubsub_lib.store import Store

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
    with pytest.raises(AlreadyExists, match="client 'a' already"):
        clients.add(client("a", OTHER))
    with pytest.raises(AlreadyExists, match="'a' has this key"):
        clients.add(client("b"))
    clients.add(client("A", OTHER))  # names and keys are bytes
    assert [each.name for each in clients.all()] == ["A", "a"]


@pytest.mark.parametrize(
    "bad", [client("a\0"), client(""), client("a", "short"), client("a", "~" * 40), client("a", KEY, "t\0")]
)
def test_invalid_client_is_refused(store: Store, bad: Client) -> None:
    with pytest.raises(InvalidValueError):
        store.directory.clients.add(bad)
    assert store.directory.clients.all() == []


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


def test_unknown_client_is_not_found(store: Store) -> None:
    for change in (store.directory.clients.grant, store.directory.clients.revoke):
        with pytest.raises(NotFound, match="no client 'x'"):
            change("x", ["t"])
