"""The proxy forwards, delays, cuts and restores; and while it is cut, no other process gets its port."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib.testing.stream_proxy import IPC, TCP, StreamProxy

SECONDS = 10.0
Family = socket.AddressFamily


class Echo:
    """A server that sends back what it receives."""

    def __init__(self, address: str) -> None:
        self._listener = listening(address)
        port = self._listener.getsockname()[1] if address.startswith(TCP) else 0
        self.address = f"{TCP}127.0.0.1:{port}" if port else address
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(ConnectionError):  # a proxy that is closed with unread bytes resets the connection
            while data := client.recv(65536):
                client.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def listening(address: str) -> socket.socket:
    if address.startswith(TCP):
        return socket.create_server(("127.0.0.1", int(address.rpartition(":")[2])))
    made = socket.socket(socket.AF_UNIX)
    made.bind(address.removeprefix(IPC))
    made.listen()
    return made


def connected(address: str) -> socket.socket:
    if address.startswith(TCP):
        return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), SECONDS)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(SECONDS)
    try:
        made.connect(address.removeprefix(IPC))
    except OSError:
        made.close()
        raise
    return made


def answer(client: socket.socket, data: bytes) -> bytes:
    threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
    received = b""
    while len(received) < len(data) and (more := client.recv(65536)):
        received += more
    return received


@pytest.fixture(params=["tcp", "ipc"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StreamProxy]:
    tcp = request.param == "tcp"
    echo = Echo(f"{TCP}127.0.0.1:0" if tcp else f"{IPC}{tmp_path}/echo")
    made = StreamProxy(f"{TCP}127.0.0.1:0" if tcp else f"{IPC}{tmp_path}/proxy", echo.address)
    yield made
    made.close()
    made.close()
    echo.close()


def test_proxy_forwards_any_number_of_bytes_in_order(proxy: StreamProxy) -> None:
    data = bytes(range(256)) * 40_000
    with connected(proxy.address) as client:
        assert answer(client, b"first") == b"first"
        assert answer(client, data) == data
    assert proxy.accepted == 1


def test_cut_ends_connections_and_refuses_new_ones_until_restore(proxy: StreamProxy) -> None:
    for _ in range(3):
        with connected(proxy.address) as client:
            assert answer(client, b"before") == b"before"
            proxy.cut()
            proxy.cut()
            assert proxy.is_cut
            assert ended(client)
            with pytest.raises(OSError):
                connected(proxy.address)
        proxy.restore()
        proxy.restore()
        assert not proxy.is_cut
    with connected(proxy.address) as client:
        assert answer(client, b"after") == b"after"


def ended(client: socket.socket) -> bool:
    """Whether the connection has ended, by a FIN or a reset."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_unavailable_target_ends_the_connection(tmp_path: Path) -> None:
    proxy = StreamProxy(f"{TCP}127.0.0.1:0", f"{IPC}{tmp_path}/missing")
    try:
        with connected(proxy.address) as client:
            assert ended(client)
    finally:
        proxy.close()


def test_proxy_that_cannot_listen_leaves_no_thread_and_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[str] = []

    def unavailable(address: str) -> socket.socket:
        addresses.append(address)
        raise OSError("a planted error")

    monkeypatch.setattr("pubsub_lib.testing.stream_proxy._listening", unavailable)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="a planted error"):
        StreamProxy("tcp://127.0.0.1:0", "tcp://127.0.0.1:1")
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end
    listening(addresses[0]).close()


@pytest.mark.parametrize("proxy", ["tcp"], indirect=True)
def test_no_other_process_gets_the_port_during_a_cut(proxy: StreamProxy) -> None:
    proxy.cut()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", int(proxy.address.rpartition(":")[2])))


@pytest.mark.parametrize("proxy", ["tcp"], indirect=True)
def test_proxy_sends_small_messages_at_once(proxy: StreamProxy) -> None:
    with connected(proxy.address) as client:
        assert answer(client, b"one") == b"one"
        sockets = [side._transport.get_extra_info("socket") for side in proxy._sides if side._transport is not None]
        assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets] == [1, 1]


def test_proxy_delays_each_direction(proxy: StreamProxy) -> None:
    proxy.delay = 0.1
    with connected(proxy.address) as client:
        began = time.monotonic()
        assert answer(client, b"there and back") == b"there and back"
        assert time.monotonic() - began >= 0.2


def test_end_of_one_side_ends_the_other_side(proxy: StreamProxy) -> None:
    with connected(proxy.address) as client:
        assert answer(client, b"x") == b"x"
    assert poll(lambda: not proxy._sides, SECONDS)


def test_stalled_proxy_reads_nothing_of_old_and_new_connections_until_it_resumes() -> None:
    echo = Echo(f"{TCP}127.0.0.1:0")
    proxy = StreamProxy(f"{TCP}127.0.0.1:0", echo.address)
    try:
        with connected(proxy.address) as old:
            assert answer(old, b"before") == b"before"
            proxy.stall()
            proxy.stall()
            with connected(proxy.address) as new:
                for client in (old, new):
                    client.sendall(b"x")
                    client.settimeout(0.1)
                    with pytest.raises(TimeoutError):
                        client.recv(1)
                old.setblocking(False)
                with pytest.raises(BlockingIOError):
                    for _ in range(1000):  # the buffers of both sockets become full
                        old.send(bytes(100_000))
                proxy.resume()
                for client in (old, new):
                    client.settimeout(SECONDS)
                    assert client.recv(1) == b"x"
    finally:
        proxy.close()
        echo.close()
