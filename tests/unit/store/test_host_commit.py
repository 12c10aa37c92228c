"""A worker's end of the host's group commit: the service is not there, refuses, ends, or is stopped."""

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _patience import longest
from sqlalchemy import make_url

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Point
from pubsub_lib.errors import NotFound, OutcomeUnknown, StoreUnavailable
from pubsub_lib.store import host_commit, host_messages
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.host_commit import HostCommit, database_of
from pubsub_lib.store.host_messages import Declined, Frames, Refused, Welcome, encode
from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Operation
from pubsub_lib.store.writer import Work
from tests.unit.store.test_fork_safety import child

DATABASE = make_url("postgresql://me:secret@host/net")
LONG = longest(30.0)
TIMEOUT = 0.3
"""Seconds of an exchange whose answer does not come; see :func:`greet`."""
PREPARED = encode(host_messages.prepared_of(Commit(Point(1, 7), 7, [])))
DONE = encode(host_messages.finished_of(Attempt(Commit(Point(1, 7), 7, []))))


def work(value: bytes = b"1", verb: Any = "set") -> Work:
    return Work((Operation(verb, "t", "k", value),), {}, 7, "api")


class Service:
    """A socket whose connections are served by functions of the test, one after the other."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self.path = path
        self.connections: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()

    def serve(self, *scripts: Callable[[socket.socket], object]) -> None:
        """Serve one connection by each script."""

        def run() -> None:
            for script in scripts:
                try:
                    connection, _ = self.listener.accept()
                except OSError:  # the end of the test, which made fewer connections
                    return
                connection.settimeout(LONG)
                self.connections.append(connection)
                script(connection)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # close() alone does not end a thread's accept()
        self.listener.close()
        for each in self.connections:
            each.close()
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive()


def read(connection: socket.socket) -> bytes:
    """The body of one message."""
    frames = Frames(10**6)
    while True:
        data = connection.recv(65536)
        if not data:
            return b""
        if bodies := frames.feed(data):
            return bodies[0]


def answering(*answers: bytes, end: bool = True) -> Callable[[socket.socket], None]:
    """Welcome, then one answer for each request; then the connection ends."""

    def script(connection: socket.socket) -> None:
        read(connection)
        connection.sendall(encode(Welcome()))
        for answer in answers:
            read(connection)
            connection.sendall(answer)
        if end:
            connection.close()

    return script


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hop" / "socket.commit"


@pytest.fixture
def service(path: Path) -> Iterator[Service]:
    service = Service(path)
    yield service
    service.close()


@pytest.fixture
def host(path: Path) -> Iterator[HostCommit]:
    host = HostCommit(path, DATABASE, Limits(), LONG, lambda table: table == "typed")
    yield host
    host.close()


def greet(host: HostCommit, timeout: float, connections: int = 1) -> None:
    """Open connections whose next exchange has this time; the greeting had all the time that it needed."""
    for connection in [host._take()[0] for _ in range(connections)]:
        assert connection is not None
        connection._timeout = timeout
        host._put(connection)


def test_answer_of_the_service_is_the_attempt(service: Service, host: HostCommit) -> None:
    failed = encode(host_messages.finished_of(Attempt(error=NotFound("gone"))))
    service.serve(answering(PREPARED + DONE, failed, encode(Declined())))
    done = host.run(work())
    assert done is not None
    assert done.commit == Commit(Point(1, 7), 7, [])
    missing = host.run(work())
    assert missing is not None
    assert isinstance(missing.error, NotFound)
    assert host.run(work()) is None
    assert len(service.connections) == 1


def test_missing_service_is_logged_once_and_asked_again_after_a_pause(
    path: Path, host: HostCommit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(host_commit, "FIRST_PAUSE", LONG)
    assert host.run(work()) is None
    (record,) = caplog.records
    assert "commits by its own connection: [Errno 2] No such file" in record.getMessage()
    service = Service(path)
    try:
        service.serve(answering(PREPARED + DONE))
        assert host.run(work()) is None
        host._again_at -= LONG  # as if the pause had passed
        assert host.run(work()) is not None
    finally:
        service.close()
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    assert "commits for this process again" in caplog.records[1].getMessage()


def test_pause_doubles_up_to_its_maximum(host: HostCommit) -> None:
    pauses = []
    for _ in range(8):
        host._again_at = 0.0
        assert host.run(work()) is None
        pauses.append(host._pause)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_refusal_is_logged_with_its_reason(
    service: Service, host: HostCommit, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(connection: socket.socket) -> None:
        read(connection)
        connection.sendall(encode(Refused("the service writes to another database")))

    service.serve(refuse)
    assert host.run(work()) is None
    assert "by its own connection: the service writes to another database" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("greeting", [b"", b"\xff" * 8, DONE])
def test_connection_with_an_invalid_greeting_is_not_used(greeting: bytes, service: Service, host: HostCommit) -> None:
    def script(connection: socket.socket) -> None:
        read(connection)
        connection.sendall(greeting)
        connection.close()

    service.serve(script)
    assert host.run(work()) is None
    assert host._all == set()


def test_folder_that_others_can_use_is_not_used(
    service: Service, host: HostCommit, caplog: pytest.LogCaptureFixture
) -> None:
    service.path.parent.chmod(0o755)
    assert host.run(work()) is None
    assert "is open to others (mode 0755)" in caplog.text


def test_connection_lost_before_the_point_is_certainly_not_committed(service: Service, host: HostCommit) -> None:
    service.serve(answering(b""))
    assert host.run(work()) is None


@pytest.mark.parametrize("part", range(1, len(PREPARED)))
def test_part_of_the_point_is_not_the_point(part: int, service: Service, host: HostCommit) -> None:
    """The service commits only after the whole message was sent."""
    service.serve(answering(PREPARED[:part]))
    assert host.run(work()) is None


@pytest.mark.parametrize("more", [b"", DONE[:3], DONE[:-1]])
def test_connection_lost_after_the_point_leaves_a_doubt(more: bytes, service: Service, host: HostCommit) -> None:
    service.serve(answering(PREPARED + more))
    attempt = host.run(work())
    assert attempt is not None
    assert isinstance(attempt.error, StoreUnavailable)
    assert attempt.doubt == Commit(Point(1, 7), 7, [])
    assert attempt.commit is None


def test_idle_connection_of_an_ended_service_is_replaced(service: Service, host: HostCommit) -> None:
    service.serve(answering(PREPARED + DONE), answering(PREPARED + DONE))
    for _ in range(2):
        attempt = host.run(work())
        assert attempt is not None
        assert attempt.commit is not None


def test_stopped_service_cannot_announce_after_the_timeout(service: Service, host: HostCommit) -> None:
    resumed, failed = threading.Event(), threading.Event()

    def stopped(connection: socket.socket) -> None:
        answering(end=False)(connection)
        read(connection)
        assert resumed.wait(LONG)
        try:
            connection.sendall(PREPARED)
        except OSError:
            failed.set()

    service.serve(stopped)
    greet(host, TIMEOUT)
    assert host.run(work()) is None
    resumed.set()
    assert failed.wait(LONG)


def test_stopped_service_that_announced_leaves_a_doubt(service: Service, host: HostCommit) -> None:
    service.serve(answering(PREPARED, end=False))
    greet(host, 5.0)  # the point has to arrive in this time
    attempt = host.run(work())
    assert attempt is not None
    assert attempt.doubt is not None
    assert "did not answer within 5.0 s" in str(attempt.error)
    assert host._pause == 1.0


def test_answer_that_cannot_be_read_makes_the_outcome_unknown(
    service: Service, host: HostCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another thread closes the descriptor: the service may have announced its COMMIT."""
    service.serve(answering(end=False))

    def closed(self: object, until: float) -> bytes:
        self._socket.close()  # type: ignore[attr-defined]
        raise OSError(errno.EBADF, "Bad file descriptor")

    received = host_commit._Connection._received
    calls = iter([received, closed])
    monkeypatch.setattr(host_commit._Connection, "_received", lambda self, until: next(calls)(self, until))
    with pytest.raises(OutcomeUnknown, match=r"could not be read .*call committed\(7\) later") as caught:
        host.run(work())
    assert (caught.value.nonce, caught.value.position) == (7, None), "a later attempt may have another position"


def test_shut_connection_shows_what_was_sent_before_and_takes_no_more(service: Service) -> None:
    sent, shut, failed = threading.Event(), threading.Event(), threading.Event()

    def script(connection: socket.socket) -> None:
        connection.sendall(PREPARED)
        sent.set()
        assert shut.wait(LONG)
        try:
            connection.sendall(PREPARED)
        except OSError:
            failed.set()

    service.serve(script)
    connection = host_commit._Connection(service.path, TIMEOUT)
    assert sent.wait(LONG)
    exchange = host_messages.Exchange(work())
    connection._socket.settimeout(TIMEOUT)
    keep = connection._socket.dup()  # as in a forked child: a mere close would not end the connection
    connection.shut(exchange.feed)
    assert exchange.prepared is not None
    shut.set()
    assert failed.wait(LONG)
    keep.close()


@pytest.mark.parametrize("times", range(20))
def test_either_the_point_arrives_or_the_service_notices(times: int, service: Service, host: HostCommit) -> None:
    """The message of the service and the timeout of the worker meet at any moment."""
    sent: list[bool] = []
    ended = threading.Event()

    def late(connection: socket.socket) -> None:
        answering(end=False)(connection)
        read(connection)
        threading.Event().wait(TIMEOUT - 0.002 + 0.0002 * times)
        try:
            connection.sendall(PREPARED)
            sent.append(True)
        except OSError:
            sent.append(False)
        ended.set()

    service.serve(late)
    greet(host, TIMEOUT)
    attempt = host.run(work())
    assert ended.wait(LONG)
    assert sent == [attempt is not None]


def test_timeout_on_an_idle_connection_is_not_repeated_on_others(service: Service, host: HostCommit) -> None:
    silent = answering(end=False)
    service.serve(silent, silent)
    greet(host, TIMEOUT, connections=2)
    assert len(host._idle) == 2
    assert host.run(work()) is None
    assert host._idle == []
    assert host._pause == 1.0


def test_invalid_message_makes_the_outcome_unknown(service: Service, host: HostCommit) -> None:
    service.serve(answering(PREPARED + b"\xff" * 8))
    attempt = host.run(work())
    assert attempt is not None
    assert isinstance(attempt.error, OutcomeUnknown)
    assert host._all == set()


def test_interrupted_exchange_ends_its_connection(
    service: Service, host: HostCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def script(connection: socket.socket) -> None:
        answering(end=False)(connection)
        read(connection)
        connection.sendall(PREPARED)
        with suppress(OSError):
            while connection.recv(100):
                pass
        ended.set()

    service.serve(script)

    class Interrupts(host_messages.Exchange):
        def feed(self, data: bytes) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(host_commit, "Exchange", Interrupts)
    with pytest.raises(KeyboardInterrupt):
        host.run(work())
    assert ended.wait(LONG)
    assert host._all == set()


def test_large_and_typed_transactions_are_not_sent(service: Service, host: HostCommit) -> None:
    assert host.run(work(b"1" * host_messages.MAX_REQUEST)) is None
    assert host.run(Work((Operation("update", "typed", "k", b"{}"),), {}, 7, "")) is None
    reads = {("t", "k" * 500 + str(number)): 1 for number in range(200)}
    assert host.run(Work((Operation("set", "t", "k", b"1"),), reads, 7, "")) is None
    assert service.connections == []
    service.serve(answering(PREPARED + DONE))
    assert host.run(Work((Operation("set", "typed", "k", b"{}"),), {}, 7, "")) is not None


def test_closed_connections_are_not_kept(service: Service, host: HostCommit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_commit, "MAX_IDLE", 0)
    service.serve(answering(PREPARED + DONE, end=False), answering(PREPARED + DONE, end=False))
    assert host.run(work()) is not None
    assert host._all == set()
    monkeypatch.undo()
    host.close()
    assert host.run(work()) is not None
    assert host._all == set()


def test_forked_child_has_connections_of_its_own(service: Service, host: HostCommit) -> None:
    service.serve(answering(PREPARED + DONE, PREPARED + DONE))
    assert host.run(work()) is not None
    (inherited,) = host._all

    def in_child() -> None:
        host.after_fork()
        assert inherited._socket.fileno() == -1
        service.listener.close()
        assert host._all == set()

    assert child(in_child, seconds=60) == 0
    assert host.run(work()) is not None


def test_database_is_compared_without_its_password(tmp_path: Path) -> None:
    assert database_of(DATABASE) == database_of(make_url("postgresql://me:other@host/net"))
    assert "secret" not in database_of(DATABASE)
    assert database_of(DATABASE) != database_of(make_url("postgresql://me@host/other"))
    file = tmp_path / "net.db"
    file.touch()
    (tmp_path / "link.db").symlink_to(file)
    assert database_of(make_url(f"sqlite:///{file}")) == database_of(make_url(f"sqlite:///{tmp_path}/link.db"))
    assert database_of(make_url(f"sqlite:///{file}")) == database_of(make_url(f"sqlite:///{os.path.relpath(file)}"))
