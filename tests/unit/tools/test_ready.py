"""The socket by which a child process reports that it is ready."""

import socket
from pathlib import Path

import pytest
from _ready import ReadySocket


def send(to: ReadySocket, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as child:
        child.sendto(message, to.variables["NOTIFY_SOCKET"])


def test_child_is_ready_after_its_message(tmp_path: Path) -> None:
    with ReadySocket(tmp_path / "ready") as ready:
        ready.expect()
        assert not ready.ready()
        send(ready, b"WATCHDOG=1")
        assert not ready.ready()
        send(ready, b"READY=1")
        assert ready.ready()
        assert ready.ready()


def test_message_of_the_previous_child_does_not_count(tmp_path: Path) -> None:
    with ReadySocket(tmp_path / "ready") as ready:
        send(ready, b"READY=1")
        ready.expect()
        assert not ready.ready()


def test_path_that_exists_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    with pytest.raises(OSError, match="in use"):
        ReadySocket(tmp_path / "ready")
