"""The hop between workers and service: buffers while the service is down, forks, and an orderly end."""

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from _processes import poll

from pubsub_lib import zmq_frames
from pubsub_lib.api import DriverSettings
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import ConfigError, HandoffRejectedError, TransportError
from pubsub_lib.testing.checks import in_a_fork
from pubsub_lib.testing.rig import Listener, Rig, Scene, scene
from pubsub_zmq.multiproc import publisher as pushing
from pubsub_zmq.multiproc import subscriber as receiving
from pubsub_zmq.multiproc.driver import IpcDriver
from pubsub_zmq.multiproc.options import OPTIONS

ROOT = Path(__file__).resolve().parents[4]


def rig(tmp_path: Path, **options: Any) -> Rig:
    return Rig(IpcDriver, DriverSettings(bind_address=f"ipc://{tmp_path}/hop/socket", options=options))


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Scene]:
    with scene(rig(tmp_path)) as made:
        yield made


def arrived(listener: Listener, count: int) -> None:
    listener.received.until(lambda: len(listener.received.points("t")) >= count, f"{count} links came")


def test_option_defaults_equal_the_drivers_defaults() -> None:
    given = DriverSettings(bind_address="ipc:///x", options={option.name: option.default for option in OPTIONS})
    assert IpcDriver.publisher(given).__dict__.items() >= {"_buffer": 2500, "full_wait": 0.5, "_linger": 0.5}.items()


def test_publisher_that_cannot_connect_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, Any]] = []
    real = zmq.Context.socket

    def remembered(context: Any, *kind: Any) -> Any:
        made.append((context, real(context, *kind)))
        return made[-1][1]

    connect = zmq.Socket.connect

    def refused(socket: Any, address: str) -> None:
        if address.startswith("inproc:"):  # of the monitor
            connect(socket, address)
        else:
            raise zmq.ZMQError(errno.EPROTONOSUPPORT)

    monkeypatch.setattr(zmq.Context, "socket", remembered)
    monkeypatch.setattr(zmq.Socket, "connect", refused)
    publisher = IpcDriver.publisher(rig(tmp_path).settings)
    with pytest.raises(TransportError, match="cannot connect to the worker socket"):
        publisher.initialize(lambda _: None, lambda: None)
    assert len(made) == 2, "the socket, and that of its monitor"
    for context, opened in made:
        assert opened.closed
        assert context.closed
    publisher.close()


@pytest.mark.parametrize("options", [{"buffer": 0}, {"when_full": "drop"}, {"full_wait": 2.0}, {"linger": -1.0}])
def test_invalid_hop_options_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    for make in (IpcDriver.publisher, IpcDriver.subscriber):
        with pytest.raises(ConfigError, match=r"correct \[pubsub_ipc\]"):
            make(rig(tmp_path, **options).settings)


def test_daemonize_without_free_files_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    subscriber = IpcDriver.subscriber(rig(tmp_path).settings)
    subscriber.initialize(lambda envelope: None, lambda: None)
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with monkeypatch.context() as patched:
        patched.setattr(os, "eventfd", full)
        with pytest.raises(TransportError, match=r"cannot bind the worker socket .*Too many open files"):
            subscriber.daemonize()
    # A thread of an earlier test may have a file open for a moment.
    assert poll(lambda: set(os.listdir("/proc/self/fd")) == before, 10)  # noqa: PTH208
    subscriber.daemonize()
    subscriber.close()


def test_messages_pushed_while_the_service_is_down_arrive_when_it_starts(on: Scene) -> None:
    links = [on.send("t") for _ in range(100)]
    listener = on.subscriber(ALL)
    arrived(listener, 100)
    assert listener.received.points("t") == [link.point for link in links]


def test_messages_pushed_between_two_services_arrive_at_the_second(
    on: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_STOP", 30.0)  # else the first one may still hold the path
    first = on.subscriber(ALL)
    on.send("t")
    arrived(first, 1)
    first.subscriber.close()
    last = [on.send("t") for _ in range(10)]
    second = on.subscriber(ALL)
    arrived(second, 10)
    assert second.received.points("t") == [link.point for link in last]


def test_messages_that_no_service_takes_before_close_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with scene(rig(tmp_path, linger=0.1)) as on:
        for _ in range(3):
            on.send("t")
        assert on.sender.publisher.counters() == {"sent": 3, "waited": 0, "refused": 0, "lost": 0}
        on.sender.publisher.close()
        assert on.sender.publisher.counters() == {"sent": 0, "waited": 0, "refused": 0, "lost": 3}
    (record,) = caplog.records
    assert f"3 messages to the worker socket {tmp_path}/hop/socket were dropped at the end" in record.getMessage()
    assert "within 0.1 s; start the publisher service (the changes are stored and arrive later)" in record.getMessage()


def test_messages_after_the_last_service_are_counted_at_close(tmp_path: Path) -> None:
    with scene(rig(tmp_path, linger=0.1)) as on:
        publisher: Any = on.sender.publisher
        on.send("t")
        listener = on.subscriber(ALL)
        arrived(listener, 1)
        on.send("t")
        arrived(listener, 2)
        listener.subscriber.close()
        assert poll(lambda: bool(publisher._signal.poll(0)), 10), "the end of the connection"
        for _ in range(4):
            on.send("t")
        publisher.close()
        assert (publisher.counters()["sent"], publisher.counters()["lost"]) == (2, 4)


def test_close_beside_a_service_that_takes_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """How many of the messages it took is unknown."""
    made = rig(tmp_path, linger=0.2, buffer=10_000)
    with scene(made) as on, zmq.Context() as context, context.socket(zmq.PULL) as stalled:
        stalled.rcvhwm = 1
        (tmp_path / "hop").mkdir(mode=0o700, exist_ok=True)
        stalled.bind(f"ipc://{tmp_path}/hop/socket")
        publisher: Any = on.sender.publisher
        assert poll(lambda: on.send("t") is not None and publisher._connected, 10), "the connection"
        for _ in range(5000):
            on.send("t")
        sent = publisher.counters()["sent"]
        publisher.close()
        assert (publisher.counters()["sent"], publisher.counters()["lost"]) == (sent, 0)
    (record,) = caplog.records
    assert "did not take all messages at the worker socket" in record.getMessage()


def test_messages_that_a_service_takes_during_close_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "_MAX_RECONNECT_MS", 100)  # so that several attempts follow a slow bind
    with scene(rig(tmp_path, linger=1.0)) as on:
        publisher: Any = on.sender.publisher
        publisher._linger = 30.0  # more than the option allows: the service may start late on a busy machine
        for _ in range(5):
            on.send("t")
        closing = threading.Thread(target=on.sender.publisher.close)
        closing.start()
        listener = on.subscriber(ALL)
        closing.join(60)
        arrived(listener, 5)
        assert (publisher.counters()["sent"], publisher.counters()["lost"]) == (5, 0)


@pytest.mark.parametrize(("when_full", "refusal"), [("wait", TransportError), ("raise", HandoffRejectedError)])
def test_message_beyond_the_full_buffer_is_refused(
    when_full: str, refusal: type[TransportError], tmp_path: Path
) -> None:
    with scene(rig(tmp_path, buffer=20, when_full=when_full, full_wait=0.05)) as on:
        kept = [on.send("t") for _ in range(20)]
        with pytest.raises(TransportError, match=r"buffer of 20 messages .* is full; start the publisher") as caught:
            on.send("t")
        assert type(caught.value) is refusal
        counters = on.sender.publisher.counters()
        assert (counters["sent"], counters["refused"], counters["waited"]) == (20, 1, int(when_full == "wait"))
        listener = on.subscriber(ALL)
        arrived(listener, 20)  # no accepted message is lost
        assert listener.received.points("t") == [link.point for link in kept]


def test_message_beyond_the_full_buffer_does_not_wait_after_its_deadline(tmp_path: Path) -> None:
    with scene(rig(tmp_path, buffer=5, full_wait=0.9)) as on:
        for _ in range(5):
            on.send("t")
        (envelope,) = on.sender.envelopes(on.link("t"), on.rig.settings)
        with pytest.raises(TransportError, match="is full"):
            on.sender.publisher.send_event_by(envelope, time.monotonic())
        counters = on.sender.publisher.counters()
        assert (counters["refused"], counters["waited"]) == (1, 0)


def test_large_message_takes_a_place_of_the_buffer_for_each_8_kib(tmp_path: Path) -> None:
    with scene(rig(tmp_path, buffer=20, full_wait=0.05)) as on:
        on.send("t", {"key": '"' + "x" * 10 * pushing.SLOT_BYTES + '"'})
        for _ in range(9):
            on.send("t")
        with pytest.raises(TransportError, match="is full"):
            on.send("t")
        listener = on.subscriber(ALL)
        arrived(listener, 10)
        on.fence(listener, "t")
        counters = listener.subscriber.counters()
    assert counters["received"] == 11
    assert {name for name, number in counters.items() if number} == {"received"}, "the empty messages are ignored"


@contextmanager
def busy_service(on: Scene) -> Iterator[Listener]:
    """A service whose thread has one message, and reads no more until the end of the block."""
    listener = on.subscriber(ALL)
    entered, gate = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        assert gate.wait(300)

    listener.received.hook = hold
    on.send("t")
    try:
        assert entered.wait(60)
        yield listener
    finally:
        gate.set()


def test_bytes_that_wait_for_a_busy_service_are_bounded(tmp_path: Path) -> None:
    """Their number alone would be the sum of both options."""
    with scene(rig(tmp_path, buffer=100, receive_buffer=200, full_wait=0.5)) as on, busy_service(on):
        value = '"' + "x" * 250_000 + '"'
        accepted = 0
        with pytest.raises(TransportError, match="is full"):
            while accepted < 300:
                on.send("t", {"key": value})
                accepted += 1
        # Each end may exceed its places by one message, and the system has a buffer of about 200 KB.
        assert 3 <= accepted <= 300 * pushing.SLOT_BYTES // len(value) + 3


def test_burst_of_10000_small_messages_is_taken_while_the_service_reads_nothing(tmp_path: Path) -> None:
    with scene(rig(tmp_path, full_wait=0.9)) as on:
        publisher: Any = on.sender.publisher
        publisher.full_wait = 60.0  # ZeroMQ's threads may wait for a processor
        with busy_service(on) as listener:
            for _ in range(10_000):
                on.send("t")
        arrived(listener, 10_001)
        assert publisher.counters()["refused"] == 0


def test_close_waits_until_the_service_has_read_what_the_system_buffers(tmp_path: Path) -> None:
    """Its queue is full, so ZeroMQ would drop the rest at the end of the connection."""
    with scene(rig(tmp_path)) as on, zmq.Context() as context, context.socket(zmq.PULL) as stalled:
        stalled.rcvhwm = 5
        (tmp_path / "hop").mkdir(mode=0o700, exist_ok=True)
        stalled.bind(f"ipc://{tmp_path}/hop/socket")
        publisher: Any = on.sender.publisher
        publisher._linger = 60.0
        assert poll(lambda: on.send("t") is not None and publisher._connected, 10), "the connection"
        for _ in range(100):
            on.send("t")
        sent = publisher.counters()["sent"]
        closing = threading.Thread(target=publisher.close)
        closing.start()
        closing.join(1)  # without the wait it ends at once
        received = 0
        while received < sent and stalled.poll(10_000):
            stalled.recv_multipart()
            received += 1
        closing.join(60)
        assert received == sent
        assert not closing.is_alive()


def test_waiting_writer_continues_when_the_service_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "_MAX_RECONNECT_MS", 100)  # so that several attempts follow a slow bind
    with scene(rig(tmp_path, buffer=5, full_wait=0.9)) as on:
        publisher: Any = on.sender.publisher
        publisher.full_wait = 60.0  # more than the option allows: the service may start late on a busy machine
        for _ in range(5):
            on.send("t")
        waiting = threading.Thread(target=on.send, args=("t",))
        waiting.start()
        listener = on.subscriber(ALL)
        arrived(listener, 6)
        waiting.join(60)
        assert publisher.counters()["refused"] == 0


def test_forked_worker_delivers_by_a_new_publisher(on: Scene) -> None:
    listener = on.subscriber(ALL)
    on.send("t")
    arrived(listener, 1)

    def child() -> None:
        link = on.link("t")
        own = on.publisher()
        publisher: Any = own.publisher
        publisher._linger = 10.0  # its close waits for the connection, which may be slow on a busy machine
        for envelope in own.envelopes(link, on.rig.settings):
            own.publisher.send_event(envelope)
        own.publisher.close()

    in_a_fork(child, 60)
    arrived(listener, 2)
    on.fence(listener, "t")


@pytest.mark.parametrize(
    ("error", "counted"), [(MemoryError(), "receive_errors"), (zmq.ZMQError(errno.ENOMEM), "socket_errors")]
)
def test_the_thread_survives_an_error_of_any_kind(
    on: Scene, monkeypatch: pytest.MonkeyPatch, error: Exception, counted: str
) -> None:
    listener = on.subscriber(ALL)
    real, errors = zmq_frames.receive, [error]

    def broken(socket: "zmq.Socket[bytes]") -> list[bytes]:
        frames = real(socket)
        if errors:
            raise errors.pop()
        return frames

    monkeypatch.setattr(receiving, "receive", broken)
    on.send("t")
    last = on.send("t")
    listener.received.until(lambda: last.point in listener.received.points("t"), "the second came")
    assert listener.subscriber.counters()[counted] == 1


def test_close_receives_messages_pushed_before(on: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_DRAIN", "_STOP"):  # a process that stands still is no reason to end earlier
        monkeypatch.setattr(receiving, name, 30.0)
    listener = on.subscriber(ALL)
    on.send("t")
    arrived(listener, 1)
    gate, entered = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        gate.wait(10)

    listener.received.hook = hold
    on.send("t")
    assert entered.wait(10)
    for _ in range(50):
        on.send("t")
    on.sender.publisher.close()  # lingers until the service has received them
    closing = threading.Thread(target=listener.subscriber.close)
    closing.start()
    gate.set()
    closing.join(60)
    assert len(listener.received.points("t")) == 52


def test_process_exit_without_close_does_not_wait_for_the_service(tmp_path: Path) -> None:
    code = (
        "import sys; from pubsub_zmq.multiproc.driver import IpcDriver; from pubsub_lib.api import DriverSettings\n"
        "from pubsub_lib.testing.rig import Rig, Scene\n"
        "scene = Scene(Rig(IpcDriver, DriverSettings(bind_address=sys.argv[1])))\n"
        "for _ in range(100): scene.send('t')\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}
    command = [sys.executable, "-c", code, f"ipc://{tmp_path}/hop/socket"]
    subprocess.run(command, env=environment, check=True, timeout=30)


def test_second_service_is_refused_and_the_first_keeps_its_messages(on: Scene) -> None:
    listener = on.subscriber(ALL)
    with pytest.raises(TransportError, match=f"is held by process {os.getpid()}"):
        on.subscriber(ALL)
    on.fence(listener, "t")


def test_hello_reply_is_not_delivered(on: Scene) -> None:
    """The hop carries no hello requests, so no subscriber has asked."""
    listener = on.subscriber(ALL)
    listener.subscriber.request_hello("mine", [ALL])
    on.sender.publisher.send_event(on.sender.hello("mine"))
    on.fence(listener, "t")
    assert listener.received.hellos("mine") == []
    assert listener.subscriber.counters()["unwanted"] == 1


def test_service_starts_over_a_dead_services_socket_file(tmp_path: Path) -> None:
    (tmp_path / "hop").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "hop" / "socket"))
    with scene(rig(tmp_path)) as on:
        listener = on.subscriber(ALL)
        on.fence(listener, "t")


OTHER_USER = 65534
STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])  # the folders above are closed to other users
user = int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(30)
    client.connect("socket")
    print(client.recv(1))
"""
"""Connects as another user, and prints the first byte of ZeroMQ's greeting, or nothing at the end of the connection."""


def test_service_reads_nothing_of_another_user_also_after_its_folder_was_opened(tmp_path: Path, on: Scene) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a program of another user")
    folder = tmp_path / "hop"

    def connects(user: int) -> tuple[str, str]:
        arguments = [sys.executable, "-I", "-S", "-c", STRANGER, str(folder), str(user)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout, done.stderr

    listener = on.subscriber(ALL)
    assert "PermissionError" in connects(OTHER_USER)[1]
    folder.chmod(0o755)
    (folder / "socket").chmod(0o666)
    assert connects(OTHER_USER) == ("b''\n", "")
    assert connects(0) == ("b'\\xff'\n", "")
    folder.chmod(0o700)  # workers refuse another mode
    on.fence(listener, "t")
