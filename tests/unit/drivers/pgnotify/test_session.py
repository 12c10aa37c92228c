"""The session, with a connection that the test controls. ``test_server.py`` has its tests with a real PostgreSQL."""

import logging
import select
import socket
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import make_url

from pubsub_lib.store import StoreSettings
from pubsub_pgnotify.session import Session

HOUR = 3600.0


class Connection:
    """A connection that libpq ended when it parsed what the server sent: it has no socket any more."""

    def __init__(self) -> None:
        self.ends = socket.socketpair()
        self.autocommit = False
        self.desynchronized = False
        self.closed = False
        self.pgconn = self

    def execute(self, query: str, parameters: object = None) -> None:
        pass

    def fileno(self) -> int:
        if self.desynchronized:
            raise psycopg.OperationalError("the connection is lost")
        return self.ends[0].fileno()

    def consume_input(self) -> None:
        self.ends[0].setblocking(False)
        self.desynchronized = select.select([self.ends[0]], [], [], 0)[0] != []

    def notifies(self) -> None:
        """libpq reports no error here."""

    def close(self) -> None:
        self.closed = True
        for each in self.ends:
            each.close()


class Engine:
    """Makes this one connection, and no further one."""

    def __init__(self) -> None:
        self.driver_connection = Connection()
        self.made = 0

    def raw_connection(self) -> "Engine":
        self.made += 1
        if self.made > 1:
            raise psycopg.OperationalError("connection refused")
        return self

    def detach(self) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = Engine()
    monkeypatch.setattr("pubsub_pgnotify.session.engine.make", lambda *_given, **_options: made)
    yield made
    made.driver_connection.close()


@pytest.fixture
def opened(engine: Engine) -> Iterator[Session]:
    made = Session(make_url("postgresql+psycopg://host/name"), StoreSettings(), "listening", HOUR)
    made.open()
    yield made
    made.close()


def test_connection_that_libpq_ended_while_parsing_is_a_loss(
    opened: Session, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    assert opened.connect("LISTEN x")
    connection = engine.driver_connection
    connection.ends[1].send(b"\0garbage")
    assert opened.wait(HOUR) == []
    assert opened.counts["lost_connections"] == 0, "libpq reports nothing before the next use"
    assert opened.wait(HOUR) == []
    assert not opened.connected
    assert connection.closed
    assert opened.counts == {"connections": 1, "lost_connections": 1}
    assert 0 < opened.retry_in <= 0.1
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert line.startswith("listening does not work and is retried until it succeeds")


def test_wake_before_a_wait_ends_it(opened: Session) -> None:
    opened.wake()
    assert opened.wait(HOUR) == []


def test_failed_connection_is_tried_again_with_a_growing_wait(opened: Session, engine: Engine) -> None:
    engine.made = 1
    waits: list[float] = []
    for _ in range(3):
        assert not opened.connect("LISTEN x")
        waits.append(opened.retry_in)
        opened._retry_at = 0.0
    assert waits[0] < waits[1] < waits[2] <= 0.4
    assert opened.counts["connections"] == 0
