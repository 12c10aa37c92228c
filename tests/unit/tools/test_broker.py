"""The private brokers' base class, with a program that listens, or ends."""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import _processes
import pytest
from _bench.e2e import packages
from _bench.e2e.side import LeftOutError
from _broker import Broker
from _children import ChildError

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = server.accept()
    client.sendall(b"ready")
    client.close()
"""


class Listener(Broker):
    package = "listener"

    def _arguments(self, folder: Path) -> Sequence[str]:
        return ["-c", LISTEN, str(self.port)]

    def _answers(self, pid: int) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
            return connection.recv(16) == b"ready"


@pytest.fixture(autouse=True)
def _unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = packages.Unpacked({"listener": Path(sys.executable)}, {}, "listener 1")
    monkeypatch.setattr(packages, "server", lambda package, programs, more: made)


def test_broker_keeps_its_port_after_kill_and_restart() -> None:
    with Listener() as broker:
        port, first = broker.port, broker.pid
        broker.kill()
        broker.kill()
        with pytest.raises(OSError):
            broker._answers(0)
        broker.restart()
        assert broker.port == port
        assert broker.pid != first
        assert _processes.poll(lambda: broker._ready(broker.pid), 60)


def test_second_start_leaves_the_running_broker() -> None:
    broker = Listener()
    broker.start()
    with broker:
        pid = broker.pid
        broker.start()
        assert broker.pid == pid


def test_stopped_broker_leaves_no_folder_and_no_process() -> None:
    broker = Listener()
    with broker:
        folder = broker.log.parent
        assert folder.is_dir()
    assert not folder.exists()
    for use in (lambda: broker.pid, lambda: broker.log, broker.restart):
        with pytest.raises(ChildError, match=r"the private listener .*; call start"):
            use()
    broker.stop()


def test_broker_takes_another_port_when_its_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = _processes.free_port()
        ports = iter([other.getsockname()[1], free])
        monkeypatch.setattr(_processes, "free_port", lambda: next(ports))
        monkeypatch.setattr(Listener, "_answers", lambda self, pid: self.port == free)
        with Listener() as broker:
            assert broker.port == free


def test_program_that_ends_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "_arguments", lambda self, folder: ["-c", "import sys; sys.exit('no memory')"])
    broker = Listener()
    with pytest.raises(ChildError, match="listener ended with status 1: no memory"):
        broker.start()
    with pytest.raises(ChildError, match="never started"):
        broker.restart()


def test_unavailable_package_is_no_error_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object) -> None:
        raise LeftOutError("listener cannot be downloaded")

    monkeypatch.setattr(packages, "server", unavailable)
    with pytest.raises(LeftOutError), Listener():
        pass
