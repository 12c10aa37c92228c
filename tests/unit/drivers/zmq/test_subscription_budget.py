"""Subscriptions are bounded: the connection with most of them ends, and others are unaffected."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from pubsub_zmq.reading_progress import LEAST_FRAMING
from pubsub_zmq.subscription_budget import PAUSE, TABLE, WORTH, SubscriptionBudget, request_in
from tests.unit.drivers.zmq.alone import must_pass_alone
from tests.unit.drivers.zmq.world import Sender, eventually, world


class Frame:
    """A report of a subscription by a connection, or of an end without one."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def get(self, name: str) -> str:
        if self._descriptor is None:
            raise zmq.ZMQError(zmq.EINVAL)
        return str(self._descriptor)


def add(made: SubscriptionBudget, descriptor: int | None, cost: int) -> None:
    """A subscription that counts this number of bytes, or the end of one that did (< 0)."""
    made.received(Frame(descriptor), bytes([cost > 0]) + bytes(abs(cost) - TABLE))  # type: ignore[arg-type]


def budget(*shares: int) -> SubscriptionBudget:
    made = SubscriptionBudget("tcp://127.0.0.1:1", 1000)
    for descriptor, share in enumerate(shares):
        add(made, descriptor, share)
    return made


def test_budget_ends_the_largest_shares_until_the_rest_fits() -> None:
    assert budget(300, 900, 100).excess(1000, 0.0) == []
    assert budget(300, 900, 100).excess(1300, 0.0) == [1]
    assert budget(600, 900, 700).excess(2200, 0.0) == [1, 2]


def test_budget_ends_all_connections_when_their_shares_do_not_explain_the_total() -> None:
    assert budget(70, 90, 80).excess(5000, 0.0) == [1, 2, 0]


def test_budget_waits_until_the_subscriptions_of_ended_connections_are_gone() -> None:
    made = budget(2000)
    assert made.excess(2000, 5.0) == [0]
    assert made.excess(2000, 5.0 + PAUSE / 2) == []
    assert made.excess(2000, 5.0 + PAUSE) == [0]
    made.disconnected(0)
    assert made.excess(2000, 9.0) == []


def test_budget_does_not_count_ended_subscriptions() -> None:
    made = budget(900, 500)
    add(made, 0, -800)
    add(made, None, -100)
    assert made.excess(1400, 0.0) == [1]


class Connections:
    """Ends every connection; each call is noted."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def end(self, descriptor: int) -> bool:
        self.ended.append(descriptor)
        return True


def test_connection_that_sends_no_subscriptions_is_ended_once_for_all_that_it_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, connections = budget(100), Connections()
    for _ in range(3):
        assert not made.received(Frame(0), b"\2")  # type: ignore[arg-type]
        made.enforce(0.0, connections)  # type: ignore[arg-type]
    assert (connections.ended, len(caplog.records)) == ([0], 1)
    made.disconnected(0)
    assert not made.received(Frame(0), b"")  # type: ignore[arg-type]
    made.enforce(0.0, connections)  # type: ignore[arg-type]
    assert connections.ended == [0, 0], "the descriptor belongs to another connection now"


def test_memory_is_returned_once_when_half_of_the_subscriptions_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when their clients left by themselves."""
    returned: list[int] = []
    made, connections = SubscriptionBudget("tcp://127.0.0.1:1", 10 * WORTH), Connections()
    monkeypatch.setattr("pubsub_zmq.subscription_budget.return_memory", lambda: returned.append(made.total))
    for size in (2 * WORTH, -WORTH + 1, -1, -WORTH // 2, WORTH // 3, -WORTH // 2):
        made.grow(size)
        made.enforce(0.0, connections)  # type: ignore[arg-type]
    assert returned == [WORTH]


@pytest.mark.parametrize(
    ("message", "request_frame"),
    [
        (b"Hn\0\x90", b"Hn\0\x90"),
        (b"\1Hn\0\x90", b"Hn\0\x90"),
        (b"\1Hn\0", b""),
        (b"\1Hab", b""),
        (b"\1H", b""),
        (b"\0Hn\0\x90", b""),
        (b"\1Da\0", b""),
        (b"", b""),
    ],
)
def test_hello_request_is_a_message_or_a_subscription_with_topics(message: bytes, request_frame: bytes) -> None:
    assert request_in(message) == request_frame


def resident(peak: bool = False) -> int:
    """MiB of this process now, or the most since :func:`forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:" if peak else "VmRSS:")[2].split()[0]) // 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def burst() -> None:
    """In its own process: in one that has freed much memory, 4 MB more would find room there. The limit counts once
    ZeroMQ has all of the burst: else it may end the connection after a part, as what one connection brings depends on
    how the system delivers it.
    """
    with pytest.MonkeyPatch.context() as patch, world() as on:
        patch.setattr("pubsub_zmq.sockets.MAX_UNAPPLIED", 0)
        patch.setattr("pubsub_zmq.inflow_guard._BUSY", float("inf"))
        sender = on.sender(max_subscription_bytes=100_000_000)
        budget = sender.publisher._budget
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        before = resident()
        forget_peak()
        with stranger_with(2000, sender.address):
            eventually(lambda: budget.total >= 4_000_000, "ZeroMQ has all of the burst")
            budget.maximum = 500_000
            with stranger_with(1, sender.address, "another"):  # The limit is compared after the next report.
                eventually(lambda: sender.publisher.counters()["ended"] > 0, "the stranger is ended")
            eventually(lambda: budget.total < 1000, "its subscriptions are gone")
            eventually(lambda: resident() < before + 60, "the memory is returned")
        assert resident(peak=True) > before + 100, "the burst took much"
        listener.wait_for_message(lambda: sender.send("a"), "a")


def test_memory_of_ended_subscriptions_is_returned() -> None:
    must_pass_alone(burst)


def test_messages_that_are_no_subscription_hide_none_and_end_their_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with world() as on:
        sender = on.sender(max_subscription_bytes=10_000_000)
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        budget = sender.publisher._budget
        with zmq.Context() as context, context.socket(zmq.XSUB) as stranger:
            stranger.linger = 0
            stranger.setsockopt(zmq.RECONNECT_IVL, -1)
            stranger.connect(sender.address)
            topic = b"x" * 1000
            stranger.send(b"\1" + topic)
            eventually(lambda: budget.total > 1000, "the subscription is counted")
            for _ in range(20):
                stranger.send(b"\2" + topic)
            eventually(lambda: sender.publisher.counters()["ended"] > 0, "the stranger is ended")
            eventually(lambda: budget.total == 0, "its subscription is gone")
        assert "they sent what is no subscription and no hello request" in caplog.text
        listener.wait_for_message(lambda: sender.send("a"), "a")
        assert listener.counter("disconnected") == 0


STRANGER = """
import sys, zmq
stranger = zmq.Context().socket(zmq.SUB)
stranger.setsockopt(zmq.SNDHWM, 0)
stranger.setsockopt(zmq.RECONNECT_IVL, -1)
stranger.connect(sys.argv[1])
for each in range(int(sys.argv[2])):
    stranger.subscribe(f"{sys.argv[3]}{each:05}".encode() + bytes(1995))
sys.stdin.read()
"""


@contextmanager
def stranger_with(number: int, address: str, prefix: str = "") -> Iterator[None]:
    """A subscriber of this number of topics of 2,000 bytes after a prefix, in its own process: it needs much memory."""
    process = subprocess.Popen([sys.executable, "-c", STRANGER, address, str(number), prefix], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


SPARSE = """
import sys, zmq
stranger = zmq.Context().socket(zmq.SUB)
stranger.setsockopt(zmq.SNDHWM, 0)
stranger.setsockopt(zmq.RECONNECT_IVL, -1)
stranger.connect(sys.argv[1])
for begin, _ in enumerate(sys.stdin):
    for each in range(1000 * begin, 1000 * begin + 1000):
        stranger.subscribe(each.to_bytes(3) + bytes(1))
        stranger.subscribe(each.to_bytes(3) + bytes((255,)))
"""
MAXIMUM = 1_000_000


def wait_until_read(sender: Sender, total: int) -> None:
    """Wait until this number of bytes was read in all, or a connection was ended."""
    eventually(
        lambda: sender.publisher._budget.progress.total >= total or sender.publisher.counters()["ended"] > 0,
        "the subscriptions are read",
    )


def sparse_burst() -> None:
    """A client subscribes to prefixes with the largest tables, and waits until they are counted, in a process whose
    memory has no room of others.
    """
    with world() as on:
        sender = on.sender(max_subscription_bytes=MAXIMUM)
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        budget, before = sender.publisher._budget, resident()
        with subprocess.Popen([sys.executable, "-c", SPARSE, sender.address], stdin=subprocess.PIPE) as stranger:
            assert stranger.stdin is not None
            while not sender.publisher.counters()["ended"]:
                total = budget.progress.total + 2000 * (4 + LEAST_FRAMING)
                stranger.stdin.write(b"\n")
                stranger.stdin.flush()
                wait_until_read(sender, total)
            stranger.kill()
        assert sender.publisher.counters()["ended"] == 1
        grown = resident(peak=True) - before
        assert 10 < grown < 40 * MAXIMUM / 2**20, grown


def test_memory_of_the_sparsest_subscriptions_is_within_40_bytes_for_each_counted_one() -> None:
    must_pass_alone(sparse_burst)


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_stranger_with_too_many_subscriptions_is_ended_and_others_continue(
    scheme: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    place = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path_factory.mktemp('s')}/p"}[scheme]
    with world() as on:
        sender = on.sender(place, max_subscription_bytes=100_000)
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        with stranger_with(100, sender.address):
            eventually(lambda: sender.publisher.counters()["ended"] > 0, "the stranger is ended")
            eventually(lambda: sender.publisher._budget.total < 1000, "its subscriptions are gone")
            assert f"connections to {sender.address} were ended" in caplog.text
            assert "over max_subscription_bytes (100000)" in caplog.text
            listener.wait_for_message(lambda: sender.send("a"), "a")
            assert listener.counter("disconnected") == 0
