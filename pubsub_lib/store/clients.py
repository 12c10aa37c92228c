"""The clients of publishers with keys: names, public keys, and the topics that each may receive. Denied by default."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select

from pubsub_lib.api import Client
from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.curve_keys import check_key
from pubsub_lib.errors import AlreadyExists, NotFound
from pubsub_lib.store import schema
from pubsub_lib.store.retry import Run


class Clients:
    """The rows about clients. Any thread; each method is one short transaction, and may be tried again."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    def all(self) -> list[Client]:
        """All clients, by name."""
        clients, grants = schema.clients.c, schema.grants.c
        joined = schema.clients.outerjoin(schema.grants, clients.name == grants.name)
        query = select(clients.name, clients.public_key, grants.topic).select_from(joined).order_by(clients.name)

        def do(connection: Connection) -> list[Client]:
            topics: dict[tuple[str, str], set[str]] = {}
            for name, key, topic in connection.execute(query):
                topics.setdefault((name, key), set()).update([] if topic is None else [topic])
            return [Client(name, key, frozenset(found)) for (name, key), found in topics.items()]

        return self._read("reading the clients", do)

    def check(self, client: Client) -> None:
        """Whether it can be added now: raises as :meth:`add`, and adds nothing."""
        _check_valid(client)
        self._read("reading the clients", lambda connection: _check_new(connection, client))

    def add(self, client: Client) -> None:
        """Add a client with its topics; one that is there with this name, key and topics is left as it is. Raises
        InvalidValueError, and AlreadyExists for its name or its key.
        """
        _check_valid(client)

        def do(connection: Connection) -> None:
            if _is_there(connection, client):
                return  # also by an earlier attempt, whose COMMIT had no answer
            _check_new(connection, client)
            # Of two callers at once, one fails on the primary key, and its retry finds the other's row.
            connection.execute(insert(schema.clients).values(name=client.name, public_key=client.public_key))
            _grant(connection, client.name, client.topics)

        self._write("adding a client", do)

    def grant(self, name: str, topics: Collection[str]) -> Client:
        """Let a client receive these topics too. Returns it. Raises InvalidValueError, NotFound."""
        _check_topics(topics)

        def do(connection: Connection) -> Client:
            before = _found(connection, name)
            _grant(connection, name, set(topics) - before.topics)
            return Client(name, before.public_key, before.topics | set(topics))

        return self._write("granting topics", do)

    def revoke(self, name: str, topics: Collection[str] | None = None) -> Client:
        """Take these topics from a client; None: remove the client and its key. Returns what is left. Raises NotFound,
        also for a topic that the client was not granted.
        """
        earlier: list[Client] = []  # of an attempt whose COMMIT had no answer: it may have removed what is not found

        def do(connection: Connection) -> Client:
            try:
                before = _found(connection, name)
            except NotFound:
                if earlier:
                    return earlier[-1]
                raise
            grants = schema.grants.c
            taken = before.topics if topics is None else frozenset(topics)
            if (missing := sorted(taken - before.topics)) and not earlier:
                raise NotFound(
                    f"the client {name!r} was not granted {missing[0] or 'every topic'!r}; see pubsub-db clients list"
                )
            for topic in taken:
                connection.execute(delete(schema.grants).where(grants.name == name, grants.topic == topic))
            if topics is None:
                connection.execute(delete(schema.clients).where(schema.clients.c.name == name))
            earlier.append(Client(name, before.public_key, before.topics - taken))
            return earlier[-1]

        return self._write("revoking a client", do)


def _check_valid(client: Client) -> None:
    check_name("client", client.name)
    check_key(client.public_key)
    _check_topics(client.topics)


def _is_there(connection: Connection, client: Client) -> bool:
    clients = schema.clients.c
    same = (clients.name == client.name) & (clients.public_key == client.public_key)
    return connection.execute(select(clients.name).where(same)).first() is not None and (
        _found(connection, client.name) == client
    )


def _check_new(connection: Connection, client: Client) -> None:
    clients = schema.clients.c
    taken = (clients.name == client.name) | (clients.public_key == client.public_key)
    found = connection.execute(select(clients.name).where(taken)).scalars().first()
    if found == client.name:
        raise AlreadyExists(f"there is a client {client.name!r} already; revoke it before you add it again")
    if found is not None:
        raise AlreadyExists(f"the client {found!r} has this key; give each client a key of its own")


def _found(connection: Connection, name: str) -> Client:
    clients, grants = schema.clients.c, schema.grants.c
    # Locked, so that of two changes at once the second one reads the first one's result.
    key = connection.execute(
        select(clients.public_key).where(clients.name == name).with_for_update()
    ).scalar_one_or_none()
    if key is None:
        raise NotFound(f"there is no client {name!r}; see pubsub-db clients list")
    topics = connection.execute(select(grants.topic).where(grants.name == name)).scalars()
    return Client(name, key, frozenset(topics))


def _grant(connection: Connection, name: str, topics: Collection[str]) -> None:
    for topic in sorted(topics):
        connection.execute(insert(schema.grants).values(name=name, topic=topic))


def _check_topics(topics: Collection[str]) -> None:
    for topic in topics:
        if topic != ALL:
            check_name("topic", topic)
