"""Subscriptions that arrive faster than they are read take bounded memory: their connections are paused."""


import pytest

from pubsub_zmq.backlog import LARGE, MAX_PAUSED, MAX_UNREAD, MAX_WAITING, PAUSE, Backlog
from pubsub_zmq.inflow_guard import REST, InflowGuard
from pubsub_zmq.reading_progress import ReadingProgress
from tests.unit.drivers.zmq.alone import must_pass_alone
from tests.unit.drivers.zmq.strangers import REQUEST, TOGGLE, flood
from tests.unit.drivers.zmq.test_inflow_guard import connected, never_busy, no_hold
from tests.unit.drivers.zmq.test_subscription_budget import resident
from tests.unit.drivers.zmq.world import eventually, world

LONGEST_PAUSE = 1.0
MUCH = MAX_WAITING + 1


class Rig:
    """A Backlog of connections that are all those of its port, and the pauses that it makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pubsub_zmq.backlog.is_of", lambda descriptor, port: descriptor < 1000)
        self.progress = ReadingProgress()
        self.paused: list[int] = []
        self.number_paused = 0
        self.ended: list[int] = []
        self.counts = {"unread": 0}
        monkeypatch.setattr("pubsub_zmq.backlog.end", self._end)
        self.backlog = Backlog(1, self.progress, self._pause, lambda: self.number_paused, self.counts)

    def _pause(self, descriptor: int, brought: int, seconds: float, reason: str) -> None:
        assert 0 < seconds <= LONGEST_PAUSE
        self.paused.append(descriptor)

    def _end(self, descriptor: int) -> str:
        self.ended.append(descriptor)
        return "192.0.2.1"

    def look(self, *received: int) -> list[int]:
        """The connections that are paused after these numbers of bytes were received by the connections 0, 1, …"""
        self.paused.clear()
        self.backlog.look(dict(enumerate(received)), 0.0)
        return list(self.paused)


def test_connections_that_bring_most_are_paused_while_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    assert rig.look(MAX_WAITING, 0) == []
    assert rig.look(MAX_WAITING, REST + 1) == [1]
    assert rig.look(MAX_WAITING + REST // 2, 2 * REST) == [1]
    assert rig.look(MAX_WAITING + REST // 2, 3 * REST) == [], "others bring little"


def test_connections_are_not_paused_when_the_thread_has_found_the_queue_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    for each in range(1, 20):
        rig.progress.found_empty()
        assert rig.look(each * MUCH) == []


def test_what_was_read_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.look(MUCH)
    rig.progress.read(0, MUCH)
    assert rig.look(2 * MAX_WAITING) == []
    assert rig.backlog.waiting <= MAX_WAITING


def test_pauses_have_a_maximum_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    assert rig.look(*[MUCH] * 100) == list(range(MAX_PAUSED))
    rig.number_paused = MAX_PAUSED - 3
    assert rig.look(*[2 * MUCH] * 100) == [0, 1, 2]
    rig.number_paused = MAX_PAUSED + 3
    assert rig.look(*[3 * MUCH] * 100) == []


def test_connections_that_brought_most_are_ended_when_pauses_are_not_enough(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(monkeypatch)
    rig.look(MAX_UNREAD // 2, MAX_UNREAD // 2, 1000)
    assert (rig.backlog.waiting, rig.ended) == (MAX_UNREAD + 1000, [0, 1])
    assert rig.counts["unread"] == len(caplog.records) == 2
    rig.progress.found_empty()
    rig.look(2 * MAX_UNREAD)
    assert rig.ended == [0, 1], "all was read since"


def test_no_replica_is_ended_when_thousands_connect_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.look(*[LARGE] * (2 * MAX_UNREAD // LARGE))
    assert rig.backlog.waiting == 2 * MAX_UNREAD
    assert rig.ended == []


def test_data_of_other_ports_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large answer of a database, for example."""
    rig = Rig(monkeypatch)
    rig.backlog.look({1000: MUCH}, 0.0)
    assert (rig.backlog.waiting, rig.paused) == (0, [])


def test_connection_is_paused_once_at_a_time() -> None:
    """What arrived while its first pause began is counted at the next look."""
    with connected() as (_, server):
        guard = InflowGuard(server.getsockname()[1], never_busy, no_hold)
        for _ in range(2):
            guard.pause(server.fileno(), MUCH, PAUSE, "")
        assert guard.paused == guard.number_paused() == 1
        guard.close()
        guard.run()
        assert guard.number_paused() == 0


def test_pauses_end_in_the_order_of_their_times() -> None:
    with connected() as (_, long), connected() as (_, short):
        long_guard = InflowGuard(long.getsockname()[1], never_busy, no_hold)
        long_guard.pause(long.fileno(), MUCH, 1000.0, "")
        long_guard._port = short.getsockname()[1]
        long_guard.pause(short.fileno(), MUCH, 0.0, "")
        long_guard._resume(float(long_guard._paused[0][0]))
        assert long_guard.number_paused() == 1
        long_guard.close()
        long_guard.run()


MEMORY = 350
"""MiB: what waits may take 200, what ten connections have in the system's buffers 30, and what arrives between two
looks on a busy machine as much again."""
READ = 4_000_000
"""Bytes of subscriptions that are read meanwhile: a queue without a bound takes more than 1,000 MiB."""


def faster_than_read(unit: bytes = TOGGLE) -> None:
    """Ten connections send this faster than the thread reads, in a process whose memory has no room of others."""
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        before = resident()
        with flood(sender.address, 10, unit, 10**9):
            # On a busy machine the connections may be ended before, some of them as unfinished ones.
            read, counters = sender.publisher._budget.progress, sender.publisher.counters
            eventually(lambda: read.total > READ or counters()["disconnected"] == 10, "much was read, or all are ended")
            grown = resident(peak=True) - before
            assert grown < MEMORY, grown
            assert sender.publisher.counters()["paused"] > 0
            listener.wait_for_message(lambda: sender.send("a"), "a")
            assert listener.counter("disconnected") == 0


def test_subscriptions_that_arrive_faster_than_they_are_read_take_bounded_memory() -> None:
    stderr = must_pass_alone(faster_than_read)
    assert "which arrived faster than this publisher reads them" in stderr


def requests_faster_than_read() -> None:
    faster_than_read(REQUEST)


def test_hello_requests_that_arrive_faster_than_they_are_read_take_bounded_memory() -> None:
    stderr = must_pass_alone(requests_faster_than_read)
    assert "which arrived faster than this publisher reads them" in stderr
