"""A minimal broker over TCP: the transport of the driver in ``tcp_driver.py``.

A message is four bytes of length, a letter and its data. To the broker: ``P`` this client publishes; ``S`` and ``U``
subscribe to a prefix and unsubscribe; ``Y`` confirm the earlier messages; ``M`` publish (length of the head, head,
body); ``A`` a hello request for all publishers. From the broker: ``R`` confirmed, ``M`` and ``A``.
"""

import asyncio
import socket
import struct
import threading

Frames = tuple[bytes, ...]


def packet(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", 1 + len(data)) + kind + data


def message(head: bytes, body: bytes) -> bytes:
    return packet(b"M", struct.pack(">I", len(head)) + head + body)


def frames_of(data: bytes) -> Frames:
    (length,) = struct.unpack_from(">I", data)
    return data[4 : 4 + length], data[4 + length :]


def receive(connection: socket.socket) -> tuple[bytes, bytes]:
    """The next packet. Raises OSError at the end of the connection."""
    (length,) = struct.unpack(">I", _exactly(connection, 4))
    data = _exactly(connection, length)
    return data[:1], data[1:]


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the broker ended the connection")
        data += more
    return bytes(data)


class Broker:
    """Runs on its own thread. It keeps no state of a connection that has ended."""

    def __init__(self) -> None:
        self._clients: set[_Client] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self._arriving: set[asyncio.Task[object]] = set()
        self._listener.setblocking(False)
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._listener, self._accept)

    def inject(self, head: bytes, body: bytes) -> None:
        """Publish raw frames."""
        self._loop.call_soon_threadsafe(self.publish, head, packet(b"M", struct.pack(">I", len(head)) + head + body))

    def inject_request(self, frame: bytes) -> None:
        """Send a raw hello request to every publisher."""
        self._loop.call_soon_threadsafe(self.ask, packet(b"A", frame))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _stop(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        while self._clients or self._arriving:
            for client in list(self._clients):
                client.transport.abort()
            await asyncio.sleep(0.001)

    # asyncio's server leaves a connection open that it accepts while it is being closed (Python 3.11). So accept here.

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has gone already
        connection.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: _Client(self), connection))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    # -- the loop's thread -------------------------------------------------------------------------------------------

    def joined(self, client: "_Client") -> None:
        self._clients.add(client)

    def left(self, client: "_Client") -> None:
        self._clients.discard(client)

    def publish(self, head: bytes, data: bytes) -> None:
        for client in self._clients:
            if head.startswith(tuple(client.prefixes)):
                client.transport.write(data)

    def ask(self, data: bytes) -> None:
        for client in self._clients:
            if client.publishes:
                client.transport.write(data)


class _Client(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._received = bytearray()
        self.prefixes: set[bytes] = set()
        self.publishes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._broker.joined(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._broker.left(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">I", self._received)
            if len(self._received) < 4 + length:
                return
            whole = bytes(self._received[: 4 + length])
            del self._received[: 4 + length]
            self._take(whole[4:5], whole[5:], whole)

    def _take(self, kind: bytes, data: bytes, whole: bytes) -> None:
        if kind == b"M":
            self._broker.publish(frames_of(data)[0], whole)
        elif kind == b"A":
            self._broker.ask(whole)
        elif kind == b"S":
            self.prefixes.add(data)
        elif kind == b"U":
            self.prefixes.discard(data)
        elif kind == b"P":
            self.publishes = True
        elif kind == b"Y":
            self.transport.write(packet(b"R"))
