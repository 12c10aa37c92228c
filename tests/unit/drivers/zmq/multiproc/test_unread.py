"""The wait for what the peer of a closing worker has not read."""

import os
import socket
import threading
import time
from pathlib import Path

from pubsub_zmq.multiproc.unread import copy_of_connection, wait_until_read


def test_wait_ends_when_the_peer_has_read_all() -> None:
    mine, peer = socket.socketpair()
    with peer:
        with mine:
            mine.sendall(b"x" * 1000)
            connection = copy_of_connection(mine.fileno())
        assert connection is not None
        waiting = threading.Thread(target=wait_until_read, args=(connection, time.monotonic() + 60))
        waiting.start()
        assert len(peer.recv(999)) == 999
        assert len(peer.recv(10)) == 1
        waiting.join(30)
        assert not waiting.is_alive()
        assert peer.recv(1) == b"", "the copy is closed"


def test_wait_ends_at_the_deadline_and_when_the_peer_closes() -> None:
    mine, peer = socket.socketpair()
    with mine, peer:
        mine.sendall(b"x")
        first, second = copy_of_connection(mine.fileno()), copy_of_connection(mine.fileno())
        assert first is not None
        assert second is not None
        began = time.monotonic()
        wait_until_read(first, began + 0.05)
        assert time.monotonic() >= began + 0.05
        peer.close()
        wait_until_read(second, began + 60)
        assert time.monotonic() < began + 50


def test_copy_is_made_of_unix_connections_only(tmp_path: Path) -> None:
    assert copy_of_connection(-1) is None
    with socket.socket() as other:
        assert copy_of_connection(other.fileno()) is None
    with (tmp_path / "file").open("w") as file:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        assert copy_of_connection(file.fileno()) is None
        assert len(os.listdir("/proc/self/fd")) == before, "no copy stays open"  # noqa: PTH208
