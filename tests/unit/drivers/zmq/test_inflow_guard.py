"""One client's subscriptions do not silence the others: connections that bring too much are paused for a moment."""

import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from pubsub_zmq.inflow_guard import REST, InflowGuard, busiest, is_of, received
from pubsub_zmq.sockets import has_work, signal_of
from tests.unit.drivers.zmq.world import PATIENCE, ROOT, Listener, Sender, eventually, without_guard, world

MAX_WORK = 1.0
"""Seconds of the sending thread's processor time that a client may cost between two messages to the others. Not of real
time, most of which may be spent waiting for a processor on a busy machine."""
CHURN = """
import secrets, sys, zmq
from pubsub_lib.core import codec
topics = [f"{each:03x}" for each in range(380)]
frames = [codec.hello_request_frame(secrets.token_hex(6), topics) for _ in range(2000)]
context = zmq.Context()
def connected():
    xsub = context.socket(zmq.XSUB)
    xsub.setsockopt(zmq.SNDHWM, 1000)
    ended = xsub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    xsub.connect(sys.argv[1])
    return xsub, ended
xsub, ended = connected()
print("begins", flush=True)
while True:
    for frame in frames:
        if sys.argv[2:]:
            xsub.send(frame)
        else:
            xsub.send(b"\\1" + frame)
            xsub.send(b"\\0" + frame)
    if ended.poll(0):  # the publisher ended it; with a full queue, libzmq would send nothing on the next connection
        xsub.disable_monitor()
        xsub.close(0)
        xsub, ended = connected()
"""


def never_busy(now: float) -> float:
    return 0.0


def no_hold(wanted: bool) -> None:
    pass


def info(connection: socket.socket, offset: int) -> int:
    """A 32-bit number of the kernel's ``struct tcp_info``."""
    found: int = struct.unpack_from("I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), offset)[0]
    return found


def unacknowledged(connection: socket.socket) -> int:
    return info(connection, 24)


def sent_again(connection: socket.socket) -> int:
    return info(connection, 100)


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection: the client's end, and the server's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        server, _ = listening.accept()
        with server:
            yield client, server


def filled(client: socket.socket, server: socket.socket) -> None:
    """Send more than ``REST``, and read it."""
    client.sendall(bytes(2 * REST))
    left = 2 * REST
    while left:
        left -= len(server.recv(left))


def test_connections_that_brought_most_are_chosen_until_the_others_brought_little() -> None:
    assert busiest({}) == []
    assert busiest({1: REST // 2, 2: REST // 2}) == []
    assert busiest({1: 10, 2: REST + 1, 3: 20}) == [2]
    assert busiest({1: REST, 2: 5 * REST, 3: 3 * REST, 4: 1}) == [2, 3, 1]
    assert busiest(dict.fromkeys(range(100), REST // 10)) == list(range(90))


def test_paused_connection_brings_nothing_takes_everything_and_loses_nothing() -> None:
    with connected() as (client, server):
        guard = InflowGuard(server.getsockname()[1], never_busy, no_hold)
        before = guard.compare({})
        filled(client, server)
        guard.compare(before)
        assert guard.paused == 1
        there = received()[server.fileno()]
        client.sendall(b"later")
        eventually(lambda: sent_again(client) > 0, "the client's kernel sent it again, because it was dropped")
        assert received()[server.fileno()] == there
        server.sendall(b"for the client")
        assert client.recv(100) == b"for the client"
        eventually(lambda: unacknowledged(server) == 0, "what the client receives is acknowledged")
        guard.close()
        guard.run()
        server.settimeout(PATIENCE)
        assert server.recv(100) == b"later", "the end of the guard ends the pause"


def test_connection_that_brings_little_is_not_paused() -> None:
    with connected() as (client, server):
        guard = InflowGuard(server.getsockname()[1], never_busy, no_hold)
        before = guard.compare({})
        client.sendall(bytes(REST // 2))
        eventually(lambda: received()[server.fileno()] == REST // 2, "it arrived")
        guard.compare(before)
        assert guard.paused == 0


def test_connection_of_another_port_is_not_paused() -> None:
    """Of a database, for example, that sends a large answer."""
    with connected() as (client, server):
        guard = InflowGuard(server.getsockname()[1] % 65_535 + 1, never_busy, no_hold)
        before = guard.compare({})
        filled(client, server)
        guard.compare(before)
        assert guard.paused == 0


def test_descriptor_that_has_another_connection_or_a_file_now_is_left_alone(tmp_path: Path) -> None:
    """The guard reads the counters first, and the connection may be closed before it is paused."""
    with connected() as (_, server), (tmp_path / "file").open("w") as file:
        guard = InflowGuard(server.getsockname()[1] % 65_535 + 1, never_busy, no_hold)
        guard.pause(server.fileno(), 2 * REST, 0.5, "")
        assert guard.paused == 0
        before = len(list(Path("/proc/self/fd").iterdir()))
        guard.pause(file.fileno(), 2 * REST, 0.5, "")
        assert not is_of(file.fileno(), guard._port)
        # A thread of an earlier test may have a file open for a moment.
        eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) == before, "no copy stays open")


def test_new_connections_are_held_only_while_a_call_on_the_socket_lasts_long() -> None:
    busy = iter((0.0, 0.1, 0.2, 5.0, 0.1))
    held: list[bool] = []

    def busy_for(now: float) -> float:
        return next(busy)

    def hold(wanted: bool) -> None:
        held.append(wanted)
        if len(held) == 5:
            guard.close()

    guard = InflowGuard(1, busy_for, hold)
    guard.run()
    assert held == [False, False, True, True, False]


def test_new_connections_are_held_before_the_open_ones_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    guard = InflowGuard(1, lambda now: 5.0, lambda wanted: steps.append("hold"))

    def compare(self: InflowGuard, before: dict[int, int]) -> dict[int, int]:
        steps.append("compare")
        guard.close()
        return {}

    monkeypatch.setattr(InflowGuard, "compare", compare)
    guard.run()
    assert steps == ["hold", "compare"]


def test_alarm_ends_some_time_after_the_last_long_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the sending thread takes 4 s."""
    clock = itertools.count(0.0, 4.0)
    busy = iter((0.0, 5.0, 0.0, 0.0, 0.0))
    alarms: list[bool] = []

    def hold(wanted: bool) -> None:
        alarms.append(guard.alarmed)
        if len(alarms) == 5:
            guard.close()

    monkeypatch.setattr("pubsub_zmq.inflow_guard.time", SimpleNamespace(monotonic=lambda: next(clock)))
    guard = InflowGuard(1, lambda now: next(busy), hold)
    guard.run()
    assert [*alarms[1:], guard.alarmed] == [False, True, True, True, False]


class Users:
    """The threads that used the socket of a sender for its messages."""

    def __init__(self, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self._sender = sender
        self._sent = threading.Event()
        monkeypatch.setattr(sender.publisher, "_send_frames", self._use)

    def send(self) -> None:
        """Send a message, and wait until its thread has left the socket."""
        self._sent.clear()
        self._sender.send("a")
        assert self._sent.wait(PATIENCE)
        with self._sender.publisher._socket_lock:
            pass

    def _use(self, *_: object) -> None:
        self.names.append(threading.current_thread().name)
        self._sent.set()


def test_sender_leaves_the_socket_to_its_thread_while_the_guard_is_alarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as on:
        sender = on.sender()
        sender.settle()
        guard = sender.publisher._guard
        assert guard is not None
        without_guard(sender)
        users = Users(sender, monkeypatch)
        for guard.alarmed in (True, False):
            users.send()
        assert users.names == ["pubsub-zmq-send", threading.current_thread().name]


def test_sender_leaves_work_for_clients_to_the_sockets_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's burst would otherwise keep the sender in its first call, for longer than ``send_wait``."""
    with world() as on:
        sender = on.sender()
        sender.settle()
        without_guard(sender)
        users = Users(sender, monkeypatch)
        for waiting in (True, False):
            monkeypatch.setattr("pubsub_zmq.publisher.has_work", lambda _, waiting=waiting: waiting)
            users.send()
        assert users.names == ["pubsub-zmq-send", threading.current_thread().name]


def test_work_of_a_socket_is_seen_and_not_done() -> None:
    with world() as on, zmq.Context() as context, context.socket(zmq.SUB) as client:
        raw_socket = on.raw_socket()
        signal = signal_of(raw_socket.socket)
        eventually(lambda: not raw_socket.socket.poll(0) and not has_work(signal), "it is bound")
        client.linger = 0
        client.subscribe(b"x")
        client.connect(raw_socket.address)
        eventually(lambda: has_work(signal), "a connection was made")
        assert has_work(signal)
        raw_socket.wait_for_frame(lambda frame: frame == b"\1x")
        eventually(lambda: not raw_socket.socket.poll(0) and not has_work(signal), "all is done")


def test_guard_continues_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[bool] = []

    def hold(wanted: bool) -> None:
        calls.append(wanted)
        if len(calls) == 1:
            raise RuntimeError("a planted error")
        guard.close()

    guard = InflowGuard(1, never_busy, hold)
    guard.run()
    assert len(calls) == 2
    assert "a planted error" in caplog.text


@contextmanager
def churn(address: str, *form: str) -> Iterator[None]:
    """A client that makes and ends hello requests of 2 KiB as fast as it can, until the end of the block: as
    subscriptions, as older replicas do, or in another ``form``, as messages.
    """
    path = os.pathsep.join(str(ROOT / each) for each in ("", "drivers"))
    child = subprocess.Popen(
        [sys.executable, "-c", CHURN, address, *form],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n"
        yield
        assert child.poll() is None, "the client still sends"
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_client_that_churns_hello_requests_does_not_silence_the_others() -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        with churn(sender.address):
            costs = costs_until(lambda: sender.publisher.counters()["paused"] >= 3, sender, listener)
        # Without the guard the first message would come when the client has ended, which it does after this loop.
        assert max(costs) < MAX_WORK


def test_connection_that_its_client_has_ended_is_not_paused(caplog: pytest.LogCaptureFixture) -> None:
    with connected() as (client, server):
        guard = InflowGuard(server.getsockname()[1], never_busy, no_hold)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its close resets it
        client.close()
        eventually(lambda: not server_is_connected(server), "the end arrived")
        guard.pause(server.fileno(), REST, 1.0, "")
        assert guard.paused == guard.number_paused() == 0
        assert not caplog.records


def server_is_connected(server: socket.socket) -> bool:
    try:
        server.getpeername()
    except OSError:
        return False
    return True


def test_client_that_floods_hello_requests_does_not_silence_the_others() -> None:
    with world() as on:
        # Few answers a second: on a slow machine, too, requests arrive faster than they are answered.
        sender = on.sender(questions_per_second=100)
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        with churn(sender.address, "messages"):
            costs = costs_until(lambda: sender.publisher.counters()["overflow"] >= 1000, sender, listener)
        assert max(costs) < MAX_WORK
        budget = sender.publisher._budget
        assert budget.total < 1000, "ZeroMQ keeps nothing of them"


def costs_until(enough: Callable[[], bool], sender: Sender, listener: Listener) -> list[float]:
    """Make round trips until ``enough``, at least 20. What each cost the publisher's sending thread, in seconds."""
    costs: list[float] = []

    def made() -> bool:
        before = work_of(sender)
        round_trip(sender, listener)
        costs.append(work_of(sender) - before)
        return len(costs) >= 20 and enough()

    eventually(made, "enough round trips")
    return costs


def round_trip(sender: Sender, listener: Listener) -> None:
    """Send one message, and wait until it is received."""
    last = sender.send("a")
    listener.received.until(lambda: listener.latest("a") == last, "the message came")


def work_of(sender: Sender) -> float:
    """The processor time of the publisher's sending thread until now."""
    thread = sender.publisher._threads[0].ident
    assert thread is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
