"""The session, with a connection that the test controls. ``test_server.py`` has its tests with a real PostgreSQL."""

import logging
import select
import socket
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import ExecStatus
from sqlalchemy import make_url

from pubsub_lib.store import StoreSettings
from pubsub_pgnotify.session import Session

HOUR = 3600.0


class Connection:
    """A connection that libpq ended when it parsed what the server sent: it has no socket any more."""

    def __init__(self) -> None:
        self.ends = socket.socketpair()
        self.ends[0].setblocking(False)
        self.autocommit = False
        self.desynchronized = False
        self.closed = False
        self.executed: list[str] = []
        self.sent: list[tuple[bytes, list[bytes]]] = []
        self.unsent = 0
        """What ``flush`` returns."""
        self.results: list[Result | None] | None = None
        """The answer to a statement; None: it has not come."""
        self.error: psycopg.Error | None = None
        """Of the next statement that is sent."""
        self.pgconn = self.info = self
        self.encoding = "utf-8"

    def execute(self, query: str) -> None:
        self.executed.append(query)

    def add_notice_handler(self, handler: object) -> None:
        """It sends no notice."""

    def fileno(self) -> int:
        if self.desynchronized:
            raise psycopg.OperationalError("the connection is lost")
        return self.ends[0].fileno()

    def send_query_prepared(self, name: bytes, parameters: list[bytes]) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((name, parameters))

    def flush(self) -> int:
        unsent, self.unsent = self.unsent, max(0, self.unsent - 1)
        return min(1, unsent)

    def consume_input(self) -> None:
        readable = select.select([self.ends[0]], [], [], 0)[0] != []
        self.desynchronized = readable and self.ends[0].recv(100) != b"answer"

    def is_busy(self) -> int:
        return int(self.results is None)

    def get_result(self) -> "Result | None":
        assert self.results, "libpq would wait"
        return self.results.pop(0)

    def answer(self, *results: "Result | None") -> None:
        """Let the server answer with these results."""
        self.results = list(results)
        self.ends[1].send(b"answer")

    def notifies(self) -> None:
        """libpq reports no error here."""

    def close(self) -> None:
        self.closed = True
        for each in self.ends:
            each.close()


class Result:
    """The result of a statement."""

    def __init__(self, status: ExecStatus, sqlstate: bytes = b"") -> None:
        self.status = status
        self._sqlstate = sqlstate

    def error_field(self, field: int) -> bytes:
        return self._sqlstate

    def get_error_message(self, encoding: str) -> str:
        return "refused"


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


class Answers(list[bool]):
    """What ``begin`` reported; a statement is begun by ``begun_by``."""

    def begun_by(self, session: Session, *parameters: str) -> bool:
        return session.begin(b"name", parameters, self.append)


@pytest.fixture
def connected(opened: Session, engine: Engine) -> tuple[Session, Connection, Answers]:
    assert opened.connect("SET", "PREPARE")
    assert engine.driver_connection.executed == ["SET", "PREPARE"]
    return opened, engine.driver_connection, Answers()


Connected = tuple[Session, Connection, Answers]
DONE = Result(ExecStatus.TUPLES_OK)


def test_statement_is_sent_at_once_and_its_answer_reported_by_a_wait(connected: Connected) -> None:
    session, connection, answers = connected
    assert answers.begun_by(session, "a", "é")
    assert connection.sent == [(b"name", [b"a", "é".encode()])]
    session.wake()
    assert session.wait(HOUR) == []
    assert answers == [], "the server has not answered"
    connection.answer(DONE, None)
    assert session.wait(HOUR) == []
    assert answers == [True]


def test_statement_waits_for_the_answer_to_the_last_one(connected: Connected) -> None:
    session, connection, answers = connected
    assert answers.begun_by(session, "1")
    assert not answers.begun_by(session, "2")
    connection.answer(DONE, None)
    session.wait(HOUR)
    assert answers.begun_by(session, "3")
    assert [parameters for _, parameters in connection.sent] == [[b"1"], [b"3"]]


def test_no_statement_is_begun_without_a_connection(opened: Session) -> None:
    answers = Answers()
    assert not answers.begun_by(opened, "1")
    assert answers == []


def test_statement_that_the_server_refuses_is_a_loss(connected: Connected) -> None:
    """Also of one whose error does not end the connection, as when the server's queue of notifications is full."""
    session, connection, answers = connected
    assert answers.begun_by(session, "1")
    connection.answer(Result(ExecStatus.FATAL_ERROR, b"53400"), None)
    session.wait(HOUR)
    assert answers == [False]
    assert connection.closed
    assert session.counts["lost_connections"] == 1


def test_running_statement_of_a_lost_connection_is_reported(connected: Connected) -> None:
    session, connection, answers = connected
    assert answers.begun_by(session, "1")
    connection.ends[1].send(b"garbage")
    session.wait(HOUR)
    session.wait(HOUR)
    assert answers == [False]
    assert not session.connected


def test_statement_that_cannot_be_sent_is_a_loss(connected: Connected) -> None:
    session, connection, answers = connected
    connection.error = psycopg.OperationalError("no connection to the server")
    assert not answers.begun_by(session, "1")
    session.wait(HOUR)
    assert answers == []
    assert connection.closed
    assert session.counts["lost_connections"] == 1


def test_rest_of_a_statement_is_sent_when_the_socket_takes_it(connected: Connected) -> None:
    session, connection, answers = connected
    connection.unsent = 3
    assert answers.begun_by(session, "1")
    session.wait(HOUR)  # ended by begin()
    session.wait(HOUR)  # ended by the socket, which takes bytes
    assert connection.unsent == 0
    connection.answer(DONE, None)
    session.wait(HOUR)
    assert answers == [True]
