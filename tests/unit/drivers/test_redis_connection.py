"""The connection of the Redis driver without a Redis server: what it makes of replies and errors, and its end."""

import errno
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from _patience import longest
from _processes import poll
from redis import exceptions

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import TransportError
from pubsub_redis.connection import Command, Link
from pubsub_redis.opening import made
from pubsub_redis.options import checked
from pubsub_redis.publisher import RedisPublisher
from pubsub_redis.subscriber import RedisSubscriber
from tests.unit.drivers.starting import reason_of_a_start_that_close_ends

LOG = logging.getLogger("pubsub_redis.test")
LONG = longest(30.0)
PONG = b"PONG"
REFUSED = exceptions.NoPermissionError("no permissions")


class Half:
    """Notes its calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def own(self) -> Command:
        return ("SUBSCRIBE", b"own")

    def greeting(self) -> list[Command]:
        return []

    def orders(self) -> list[Command]:
        return []

    def connected(self) -> None:
        self.called.append("connected")

    def disconnected(self, reason: str, final: bool) -> None:
        self.called.append("disconnected")

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        self.called.append(kind.decode())

    def refused(self, reason: str) -> None:
        self.called.append(f"refused: {reason}")


class Replies:
    """A connection of the client library on which these replies have arrived."""

    def __init__(self, *replies: Any) -> None:
        self._left = deque(replies)

    def can_read(self, seconds: float) -> bool:
        return bool(self._left)

    def read_response(self, **_: Any) -> Any:
        reply = self._left.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def half() -> Half:
    return Half()


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link(*checked({"url": "redis://host:7000"}), LOG)
    yield made
    os.close(made._waker)


def test_a_refused_topic_does_not_end_the_connection(link: Link, half: Half) -> None:
    subscribed = [b"subscribe", b"own", 1]
    link._receive(Replies(subscribed, PONG, subscribed, REFUSED, subscribed, PONG), half)
    assert half.called[-1] == "connected"
    assert len(half.called) == 5
    assert "refused a command (no permissions)" in half.called[2]
    assert (link.counts["refused"], link.counts["connected"]) == (1, 1)


@pytest.mark.parametrize("replies", [[REFUSED, PONG, PONG], [[b"subscribe", b"own", 1], REFUSED, REFUSED]])
def test_a_connection_whose_own_channels_or_ping_are_refused_ends(link: Link, half: Half, replies: list[Any]) -> None:
    with pytest.raises(exceptions.NoPermissionError):
        link._receive(Replies(*replies), half)
    assert "connected" not in half.called


def test_a_refusal_is_logged_when_its_reason_changes_and_each_one_is_counted(link: Link, half: Half) -> None:
    other = exceptions.ResponseError("OOM")
    link._receive(Replies(PONG, PONG, REFUSED, REFUSED, 1, REFUSED, other, other, REFUSED), half)
    reasons = [each for each in half.called if each.startswith("refused")]
    assert ["OOM" in each for each in reasons] == [False, True, False]
    assert link.counts["refused"] == 6
    link._refused_at -= 61
    link._receive(Replies(REFUSED, REFUSED), half)
    assert len([each for each in half.called if each.startswith("refused")]) == 4, "not logged after a minute without"


def test_a_loss_is_logged_when_its_reason_changes_and_after_a_connection(
    link: Link, half: Half, caplog: pytest.LogCaptureFixture
) -> None:
    gone, silent = exceptions.ConnectionError("gone"), exceptions.TimeoutError("silent")
    for error in (gone, gone, silent, silent, gone):
        link._lost(half, error)
    logged = [record.getMessage() for record in caplog.records]
    assert [("gone" in each, "silent" in each) for each in logged] == [(True, False), (False, True), (True, False)]
    assert half.called == ["disconnected"] * 5, "the half does not learn of every loss"
    link._receive(Replies(PONG, PONG), half)
    link._lost(half, gone)
    assert len(caplog.records) == 4
    assert (link.counts["failed"], link.counts["disconnected"]) == (5, 1)


# -- the end of an attempt to connect ---------------------------------------------------------------------------------


SLOW = {"connect_timeout": 3600.0, "timeout": 3600.0}


@contextmanager
def silent_server() -> Iterator[socket.socket]:
    """Accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextmanager
def closed_port() -> Iterator[Any]:
    """The address of a port that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


@contextmanager
def full_server() -> Iterator[socket.socket]:
    """Accepts no further connection, and refuses none: as a host that drops packets."""
    with ExitStack() as ending:
        server = ending.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = ending.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield server


ENDLESS = [("redis", silent_server), ("rediss", silent_server), ("redis", full_server)]


@pytest.mark.parametrize(("scheme", "endless"), ENDLESS)
def test_close_ends_an_attempt_to_connect(scheme: str, endless: Callable[[], Any]) -> None:
    with endless() as server:
        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        subscriber = RedisSubscriber(*checked({"url": url, **SLOW}), Limits())
        subscriber.initialize(lambda envelope: None, lambda: None)
        subscriber.daemonize()
        link, thread = subscriber._link, subscriber._life._thread
        assert link is not None
        assert thread is not None
        assert poll(lambda: link._socket is not None, LONG)
        subscriber.close()
        thread.join(LONG)
        assert not thread.is_alive()
        # A thread of an earlier test may still open or close a file.
        assert poll(lambda: set(os.listdir("/proc/self/fd")) <= before, LONG)  # noqa: PTH208


@pytest.mark.parametrize(("scheme", "endless"), ENDLESS)
def test_a_publisher_that_cannot_connect_leaves_nothing(scheme: str, endless: Callable[[], Any]) -> None:
    with endless() as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        options, address = checked({"url": url, **SLOW})
        publisher = RedisPublisher(msgspec.structs.replace(options, connect_timeout=0.1), address, Limits())
        with pytest.raises(TransportError, match=r"start the Redis server .*: the server did not answer|unavailable"):
            publisher.initialize(lambda request: None, lambda: None)
        for thread in publisher._threads:
            thread.join(LONG)
            assert not thread.is_alive()


@contextmanager
def hanging_name_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set when a host was looked up; no look-up gets an answer."""
    asked, ended = threading.Event(), threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        asked.set()
        ended.wait()
        raise OSError("the test has ended")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield asked
    ended.set()


def test_close_ends_the_wait_for_name_servers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging_name_servers(monkeypatch) as asked:
        subscriber = RedisSubscriber(*checked({"url": "redis://host", **SLOW}), Limits())
        subscriber.initialize(lambda envelope: None, lambda: None)
        subscriber.daemonize()
        thread = subscriber._life._thread
        assert thread is not None
        assert asked.wait(LONG)
        subscriber.close()
        thread.join(LONG)
        assert not thread.is_alive()


def test_a_publisher_names_a_host_for_which_no_name_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    options, address = checked({"url": "redis://host", "timeout": 3600.0, "connect_timeout": 0.1})
    publisher = RedisPublisher(options, address, Limits())
    reasons: list[str] = []
    really = publisher.disconnected

    def disconnected(reason: str, final: bool) -> None:
        really(reason, final)
        reasons.append(reason)

    monkeypatch.setattr(publisher, "disconnected", disconnected)
    with hanging_name_servers(monkeypatch):
        monkeypatch.setattr(publisher._settled, "wait", lambda seconds: poll(lambda: bool(reasons), LONG))
        with pytest.raises(TransportError, match=r"unavailable .*no name server answered for 'host' within 0\.1 s"):
            publisher.initialize(lambda request: None, lambda: None)
        for thread in publisher._threads:
            thread.join(LONG)
            assert not thread.is_alive()


def test_a_half_that_was_closed_while_it_connected_sends_nothing(
    link: Link, half: Half, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Mock(spec=["connect", "disconnect"], connect=Mock(side_effect=link.stop))
    monkeypatch.setattr("pubsub_redis.connection.made", lambda *_: connection)
    link._once(half)
    connection.disconnect.assert_called_once_with()


def test_an_address_family_that_the_system_lacks_hides_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(family: int, *more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return really(family, *more)

    really = socket.socket
    options, server = checked({"url": "redis://host"})
    with silent_server() as listening, closed_port() as refusing:
        monkeypatch.setattr("pubsub_redis.opening.socket.socket", lacking)
        four, six = [(socket.AF_INET, 1, 6, "", each) for each in (listening.getsockname(), refusing)], socket.AF_INET6
        for found in ([(six, 1, 6, "", ("::1", 1)), four[0]], [four[0], (six, 1, 6, "", ("::1", 1))]):
            lookup = Mock(addresses=lambda seconds, found=found: found)
            made(options, server, lookup, lambda opened: None).opened().close()
        lookup = Mock(addresses=lambda seconds: [four[1], (six, 1, 6, "", ("::1", 1))])
        with pytest.raises(OSError, match="Connection refused"):
            made(options, server, lookup, lambda opened: None).opened()


def test_a_half_that_was_closed_connects_no_more(link: Link) -> None:
    with silent_server() as server, socket.create_connection(server.getsockname()) as connecting:
        link.stop()
        with pytest.raises(OSError, match="closed meanwhile"):
            link._keep(connecting)
        assert link._socket is None


def test_a_publisher_that_is_closed_while_it_starts_names_no_server() -> None:
    with silent_server() as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}"
        publisher = RedisPublisher(*checked({"url": url, **SLOW}), Limits())
        reason = reason_of_a_start_that_close_ends(publisher, server)
    assert reason == "this publisher is closed; make a new one"
