"""The socket by which a child process reports that it is ready."""

import socket

from _ready import ReadySocket


def send(to: ReadySocket, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as child:
        child.sendto(message, to.variables["NOTIFY_SOCKET"].replace("@", "\0"))


def test_child_is_ready_after_its_message() -> None:
    with ReadySocket() as ready:
        ready.expect()
        assert not ready.ready()
        send(ready, b"WATCHDOG=1")
        assert not ready.ready()
        send(ready, b"READY=1")
        assert ready.ready()
        assert ready.ready()


def test_message_of_the_previous_child_does_not_count() -> None:
    with ReadySocket() as ready:
        send(ready, b"READY=1")
        ready.expect()
        assert not ready.ready()


def test_two_sockets_have_different_names() -> None:
    with ReadySocket() as one, ReadySocket() as other:
        send(one, b"READY=1")
        assert (one.ready(), other.ready()) == (True, False)
