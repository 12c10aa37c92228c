"""A proxy for stream connections that can be cut: it simulates a broken network or a lost broker for driver tests."""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

TCP: Final = "tcp://"
IPC: Final = "ipc://"
_STEP_SECONDS: Final = 10.0
"""Maximum duration of one call. The loop does nothing else, so a longer wait is an error of the proxy."""


class StreamProxy:
    """Forwards every connection to ``address`` to ``target``, on its own thread.

    Both are ``tcp://host:port`` or ``ipc:///path``; port 0 of ``listen`` means any free port. ``delay``: seconds of
    latency in each direction. All methods block until they are done and may be called from any thread.
    """

    def __init__(self, listen: str, target: str, delay: float = 0.0) -> None:
        """Listen. Raises OSError when the address is unavailable."""
        self.target = target
        self.delay = delay
        self.accepted = 0
        """Number of accepted connections."""
        self.is_stalled = False
        """Whether nothing is read now."""
        self._sides: set[_Side] = set()
        self._connecting: set[asyncio.Task[object]] = set()
        self._listener: socket.socket | None = None
        self._reserved: socket.socket | None = None
        """Bound but never listening, so that no other process gets the port while the proxy is cut."""
        self.address = listen
        if listen.startswith(TCP):
            self._reserved = _tcp_socket(listen)
            self.address = f"{TCP}{listen.removeprefix(TCP).rpartition(':')[0]}:{self._reserved.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stream-proxy", daemon=True)
        self._thread.start()
        try:
            self.restore()
        except BaseException:
            self.close()
            raise

    @property
    def is_cut(self) -> bool:
        """Whether connections are refused now."""
        return self._listener is None

    def cut(self) -> None:
        """End every connection, at both ends, and refuse new ones until ``restore``. Idempotent."""
        self._call(self._stop())

    def restore(self) -> None:
        """Accept connections again. Idempotent."""
        self._call(self._listen())

    def stall(self) -> None:
        """Read nothing until ``resume``, at both ends of every connection: as a peer that hangs. Idempotent."""
        self._call(self._read(stalled=True))

    def resume(self) -> None:
        """Read again. Idempotent."""
        self._call(self._read(stalled=False))

    def close(self) -> None:
        """End every connection and the thread. Idempotent."""
        if self._loop.is_closed():
            return
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STEP_SECONDS)
        self._loop.close()
        if self._reserved is not None:
            self._reserved.close()

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_STEP_SECONDS)

    # -- the loop's thread -------------------------------------------------------------------------------------------

    # asyncio's server leaves a connection open that it accepts while it is being closed (Python 3.11). So accept here.

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = _listening(self.address)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._loop.remove_reader(listener)
            listener.close()
            if self.address.startswith(IPC):
                Path(self.address.removeprefix(IPC)).unlink(missing_ok=True)
        for side in list(self._sides):
            side.end()
        while self._sides or self._connecting:  # wait for their last callbacks; a connection attempt ends its own side
            await asyncio.sleep(0.001)

    async def _read(self, *, stalled: bool) -> None:
        self.is_stalled = stalled
        for side in self._sides:
            side.read_or_pause()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has gone already
        client.setblocking(False)
        if client.family == socket.AF_INET:  # asyncio itself does it for the connections that it opens
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        self._begin(self._loop.connect_accepted_socket(lambda: _Side(self, self._connect), client))

    def _begin(self, coroutine: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(coroutine)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _connect(self, client: "_Side") -> None:
        self._begin(self._connect_to_target(client))

    async def _connect_to_target(self, client: "_Side") -> None:
        server = _Side(self, client.join)
        try:
            if self.target.startswith(TCP):
                host, _, port = self.target.removeprefix(TCP).rpartition(":")
                await self._loop.create_connection(lambda: server, host, int(port))
            else:
                await self._loop.create_unix_connection(lambda: server, self.target.removeprefix(IPC))
        except OSError:
            client.end()  # as the target itself would refuse the connection

    def opened(self, side: "_Side") -> bool:
        """A connection was opened. Return False when the proxy was cut meanwhile."""
        if self._listener is None:
            return False
        self._sides.add(side)
        return True

    def closed(self, side: "_Side") -> None:
        """A connection has ended."""
        self._sides.discard(side)


class _Side(asyncio.Protocol):
    """One end of a forwarded connection. It writes the received bytes to the other end after the delay."""

    def __init__(self, proxy: StreamProxy, on_open: "Callable[[_Side], None]") -> None:
        self._proxy = proxy
        self._on_open = on_open
        self._transport: asyncio.Transport | None = None
        self._other: _Side | None = None
        self._early: list[bytes] = []
        """Received before the other end was connected."""
        self._delayed: deque[bytes | None] = deque()
        """Data to write to the other end after the delay; None: the end of the connection."""
        self._full = False
        """Whether the buffer of data to write has no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._proxy.opened(self):
            asyncio.get_running_loop().call_soon(self.read_or_pause)  # asyncio begins to read after this call
            self._on_open(self)
        else:
            self.end()

    def join(self, other: "_Side") -> None:
        """The other end is connected: forward in both directions."""
        if self._transport is None or self._transport.is_closing():
            other.end()
            return
        self._other, other._other = other, self
        for data in self._early:
            self._forward(data)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            self._forward(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.closed(self)
        if self._other is not None:
            self._forward(None)

    def pause_writing(self) -> None:
        self._full = True
        if self._other is not None:
            self._other.read_or_pause()

    def resume_writing(self) -> None:
        self._full = False
        if self._other is not None:
            self._other.read_or_pause()

    def read_or_pause(self) -> None:
        """Read this end, unless the proxy is stalled or the other end has no room."""
        if self._transport is None:
            return
        if self._proxy.is_stalled or (self._other is not None and self._other._full):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def end(self) -> None:
        """End this connection at once; data not written yet is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _forward(self, data: bytes | None) -> None:
        self._delayed.append(data)
        if self._proxy.delay:
            asyncio.get_running_loop().call_later(self._proxy.delay, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        data = self._delayed.popleft()
        other = self._other._transport if self._other is not None else None
        if other is None or other.is_closing():
            return
        if data is None:
            other.close()
        else:
            other.write(data)


def _listening(address: str) -> socket.socket:
    if address.startswith(TCP):
        made = _tcp_socket(address)
    else:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(address.removeprefix(IPC))
        Path(address.removeprefix(IPC)).chmod(0o600)
    made.setblocking(False)
    made.listen(128)
    return made


def _tcp_socket(address: str) -> socket.socket:
    """Make a socket bound to this address, which another socket that does not listen may be bound to as well."""
    host, _, port = address.removeprefix(TCP).rpartition(":")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, int(port)))
    except OSError:
        made.close()
        raise
    return made
