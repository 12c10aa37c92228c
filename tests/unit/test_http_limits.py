"""Limits of an HTTP endpoint, without a server: admission, host names, pauses."""

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from _processes import poll

from pubsub_lib import http_limits
from pubsub_lib.http_limits import (
    KEPT_FOR_READY,
    MAX_CONNECTIONS,
    MAX_PAUSE,
    PLACE_TIMEOUT,
    READY_TIMEOUT,
    REQUEST_TIMEOUT,
    Connections,
    Pauses,
    host_is_allowed,
)


@pytest.fixture
def peers() -> Iterator[list[socket.socket]]:
    made = [each for _ in range(MAX_CONNECTIONS) for each in socket.socketpair()]
    yield made
    for each in made:
        each.close()


def test_ordinary_connections_come_first_and_are_bounded(peers: list[socket.socket]) -> None:
    connections = Connections()
    ordinary = MAX_CONNECTIONS - KEPT_FOR_READY
    assert all(connections.admit(each, 10.0) for each in peers[: ordinary + 1])
    assert (connections.of(peers[0]).deadline, connections.of(peers[0]).only_ready) == (10.0 + REQUEST_TIMEOUT, False)
    kept = connections.of(peers[ordinary])
    assert (kept.deadline, kept.only_ready) == (10.0 + READY_TIMEOUT, True)
    connections.release(peers[0])
    assert connections.admit(peers[-1], 11.0)
    assert not connections.of(peers[-1]).only_ready


def test_newest_kept_connection_replaces_the_oldest_that_is_incomplete(peers: list[socket.socket]) -> None:
    connections = Connections()
    full = MAX_CONNECTIONS
    for each in peers[:full]:
        connections.admit(each, 0.0)
    first, second = (connections.of(each) for each in peers[full - KEPT_FOR_READY :][:2])
    first.reading = False  # it is being answered
    assert connections.admit(peers[full], 0.0)
    assert second.peer.recv(1) == b"", "its thread ends"
    assert first.reading is second.reading is False


def test_connection_with_unread_bytes_is_not_replaced() -> None:
    """On a busy machine, its thread may read the whole request a moment later."""
    connections = Connections()
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 1)]
    with contextlib.ExitStack() as opened:
        for pair in pairs:
            for each in pair:
                opened.enter_context(each)
        for server, _ in pairs[:-1]:
            connections.admit(server, 0.0)
        oldest, second = pairs[MAX_CONNECTIONS - KEPT_FOR_READY :][:2]
        oldest[1].sendall(b"GET /ready HTTP/1.1\r\n\r\n")
        assert connections.admit(pairs[-1][0], 0.0)
        assert connections.of(oldest[0]).reading
        assert not connections.of(second[0]).reading


def test_connection_waits_until_a_replaced_one_has_ended(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "PLACE_TIMEOUT", 60.0)
    connections = Connections()
    bound = MAX_CONNECTIONS + KEPT_FOR_READY
    for each in peers[:bound]:
        connections.admit(each, 0.0)
    with ThreadPoolExecutor(1) as thread:
        admitted = thread.submit(connections.admit, peers[bound], 0.0)
        connections.release(peers[MAX_CONNECTIONS - 1])
        assert admitted.result(60)


def test_waiting_connection_gets_any_place_and_its_whole_time(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "PLACE_TIMEOUT", 60.0)
    connections, looks = Connections(), 0

    def no_place() -> bool:
        nonlocal looks
        looks += 1
        return False

    for each in peers[: MAX_CONNECTIONS - KEPT_FOR_READY]:
        connections.admit(each, 0.0)
    monkeypatch.setattr(connections, "_free_place", no_place)
    with ThreadPoolExecutor(1) as thread:
        admitted = thread.submit(connections.admit, peers[-1], 100.0)
        assert poll(lambda: looks > 1, 60.0), "it waits"
        connections.release(peers[0])
        assert admitted.result(60)
    found = connections.of(peers[-1])
    assert not found.only_ready
    assert found.deadline > 100.0 + REQUEST_TIMEOUT, "its time begins after the wait"


class Turns:
    """In place of the lock and the clock of one thread: each wait moves the clock by its seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, connections: Connections) -> None:
        self.now = 0.0
        self.releases: tuple[float, socket.socket] | None = None
        """A connection that ends, and when."""
        self._connections = connections
        monkeypatch.setattr(http_limits, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(connections, "_lock", self)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        if self.releases is not None and self.now >= self.releases[0]:
            self._connections.release(self.releases[1])

    def notify(self) -> None:
        pass


def test_waiting_connection_for_ready_gets_its_whole_time(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections()
    turns = Turns(monkeypatch, connections)
    for each in peers[:MAX_CONNECTIONS]:
        connections.admit(each, 100.0)
        connections.of(each).reading = False  # it is being answered
    turns.releases = 0.3, peers[MAX_CONNECTIONS - 1]
    assert connections.admit(peers[-1], 100.0)
    found = connections.of(peers[-1])
    assert found.only_ready
    assert 0.3 <= turns.now < PLACE_TIMEOUT
    assert found.deadline == pytest.approx(100.0 + turns.now + READY_TIMEOUT)


@pytest.mark.parametrize("place", [0, MAX_CONNECTIONS - 1])
def test_place_that_is_free_at_the_end_of_the_wait_is_taken(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The wait is not longer than its maximum, and ends with a look at all places."""
    connections = Connections()
    turns = Turns(monkeypatch, connections)
    for each in peers[:MAX_CONNECTIONS]:
        connections.admit(each, 0.0)
        connections.of(each).reading = False
    monkeypatch.setattr(http_limits, "PLACE_TIMEOUT", 0.05)
    assert not connections.admit(peers[-1], 0.0)
    assert turns.now == pytest.approx(0.05)
    turns.releases = 0.0999, peers[place]
    assert connections.admit(peers[-1], 0.0)
    assert turns.now == pytest.approx(0.1)
    assert connections.of(peers[-1]).only_ready == (place > 0)


def test_connections_are_bounded_while_replaced_ones_end(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "PLACE_TIMEOUT", 0.01)
    connections = Connections()
    admitted = [connections.admit(each, 0.0) for each in peers]
    assert admitted.count(True) == MAX_CONNECTIONS + KEPT_FOR_READY
    connections.release(peers[MAX_CONNECTIONS - 1])
    assert connections.admit(peers[-1], 0.0)


def test_no_connection_is_replaced_while_it_is_answered(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "PLACE_TIMEOUT", 0.01)
    connections = Connections()
    for each in peers[:MAX_CONNECTIONS]:
        connections.admit(each, 0.0)
        connections.of(each).reading = False
    assert not connections.admit(peers[-1], 0.0)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("10.0.0.9:8868", True),
        ("node-1:8868", True),
        ("NODE-1.", True),
        ("[::ffff:10.0.0.9]:1", True),
        ("10.0.0.8", False),
        ("node-2", False),
        ("", False),
    ],
)
def test_host_is_the_address_of_the_connection_or_a_configured_name(host: str, allowed: bool) -> None:
    assert host_is_allowed(host, "10.0.0.9", {"node-1"}) == allowed
    assert host_is_allowed(host, "::ffff:10.0.0.9", {"node-1"}) == allowed


def test_pauses_double_up_to_the_maximum_and_begin_again_after_a_quiet_time() -> None:
    pauses = Pauses(1.0)
    now, found = 100.0, []
    for _ in range(9):
        assert pauses.left(now) == 0.0
        pauses.served(now, now)
        found.append(pauses.left(now))
        now += found[-1]
    assert found == [1, 2, 4, 8, 16, 32, MAX_PAUSE, MAX_PAUSE, MAX_PAUSE]
    now += MAX_PAUSE
    pauses.served(now, now)
    assert pauses.left(now) == 1.0


def test_pauses_follow_the_cost() -> None:
    pauses = Pauses(0.0)
    pauses.served(10.0, 12.0)
    assert pauses.left(12.0) == 8.0
    pauses.served(20.0, 60.0)
    assert pauses.left(60.0) == MAX_PAUSE
