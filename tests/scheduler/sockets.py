"""Doubles of ZeroMQ's sockets, which the threads of its drivers poll, read and write in virtual time.

As with the real ones, a *descriptor* shows only that a socket changed since any thread last used it; and
a socket that two threads use at the same time is a mistake.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import zmq

from pubsub_lib.core.limits import Limits
from pubsub_lib.socket_lock import SocketLock
from pubsub_zmq.multiproc.publisher import IpcPublisher
from pubsub_zmq.multiproc.subscriber import IpcSubscriber
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.sockets import Monitor, Waker
from pubsub_zmq.subscriber import ZmqSubscriber
from tests.scheduler.explore import World
from tests.scheduler.scheduler import NEVER_DUE

_Context = zmq.Context[zmq.Socket[bytes]]
_Socket = zmq.Socket[bytes]


class ZmqDouble:
    """In place of the module ``zmq``: all of it but the poller."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sources: dict[object, Callable[[], bool]] = {}
        """Object that may be polled → whether it is readable."""

    def Poller(self) -> "PollerDouble":  # noqa: N802 - the library's name
        return PollerDouble(self._world, self.sources)

    def __getattr__(self, name: str) -> Any:
        return getattr(zmq, name)


class PollerDouble:
    """``zmq.Poller``: waits until a registered object is readable."""

    def __init__(self, world: World, sources: dict[object, Callable[[], bool]]) -> None:
        self._world = world
        self._sources = sources
        self._registered: list[object] = []

    def register(self, source: object, flags: int) -> None:
        self._registered.append(source)

    def poll(self, milliseconds: float | None = None) -> list[tuple[object, int]]:
        until = NEVER_DUE if milliseconds is None else self._world.now + milliseconds / 1000
        self._world.scheduler.block("polls", lambda: bool(self._ready()), until)
        return [(source, int(zmq.POLLIN)) for source in self._ready()]

    def _ready(self) -> list[object]:
        return [source for source in self._registered if self._sources[source]()]


class WakerDouble:
    """``pubsub_zmq.sockets.Waker``: bytes in a pipe."""

    def __init__(self, world: World, zmq_double: ZmqDouble) -> None:
        self._world = world
        self._bytes = 0
        zmq_double.sources[self.fileno()] = lambda: self._bytes > 0

    def fileno(self) -> int:
        return id(self)

    def wake(self) -> None:
        self._world.scheduler.point("wakes the poll")
        self._bytes += 1
        self._world.scheduler.point("has woken the poll")

    def clear(self) -> None:
        self._world.scheduler.point("clears the waker")
        self._bytes = 0

    def close(self) -> None:
        pass


class MonitorDouble:
    """``pubsub_zmq.sockets.Monitor``."""

    def __init__(self, zmq_double: ZmqDouble) -> None:
        self.socket = object()
        self._events: deque[tuple[int, str]] = deque()
        zmq_double.sources[self.socket] = lambda: bool(self._events)
        self._changed = False
        """Whether the descriptor is readable."""
        zmq_double.sources[self.fileno()] = lambda: self._changed

    def fileno(self) -> int:
        return id(self)

    def add(self, event: int, endpoint: str) -> None:
        """The connection to an endpoint changed."""
        self._events.append((event, endpoint))
        self._changed = True

    def events(self) -> Iterator[tuple[int, str, int]]:
        self._changed = False
        while self._events:
            yield (*self._events.popleft(), 0)

    def close(self) -> None:
        pass


class _Frame:
    """``zmq.Frame``."""

    def __init__(self, content: bytes, more: bool) -> None:
        self.bytes = content
        self.more = more

    def get(self, name: str) -> str:
        raise zmq.ZMQError(zmq.EINVAL)  # no connection is behind it


class _SocketDouble:
    """The common part of the sockets: one user at a time, and the queue of received frames."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.incoming: deque[_Frame] = deque()
        self.closed = False
        self._user: object = None

    def use(self, what: str) -> None:
        """A call that other threads must not make at the same time."""
        self.world.check(self._user is None, f"two threads use the socket: one {what}")
        self._user = self.world.scheduler.current
        self.world.scheduler.point(what)
        self._user = None
        self.world.check(not self.closed, f"{what} on a closed socket")

    def setsockopt(self, option: int, value: object) -> None:
        pass

    def close(self, linger: int = 0) -> None:
        self.use("closes the socket")
        self.closed = True


class SubDouble(_SocketDouble):
    """An XSUB socket; ``deliver`` is the network."""

    def __init__(self, world: World, zmq_double: ZmqDouble) -> None:
        super().__init__(world)
        self.subscribed: list[bytes] = []
        """In the order in which a publisher receives them."""
        self.sent: list[bytes] = []
        """All messages to publishers: subscriptions, their ends, and hello requests."""
        self.connected: list[str] = []
        self.failed = 0
        """Number of attempts to receive without a message."""
        self.looks = 0
        """Number of looks at the events."""
        self._changed = False
        """Whether the descriptor is readable."""
        zmq_double.sources[self] = lambda: bool(self.incoming)
        zmq_double.sources[id(self)] = lambda: self._changed

    def getsockopt(self, option: int) -> int:
        if option == zmq.FD:
            return id(self)
        self.use("looks for events")
        self.looks += 1
        return int(zmq.POLLIN) if self.incoming else 0

    def use(self, what: str) -> None:
        """Each use handles what the descriptor signalled."""
        super().use(what)
        self._changed = False

    def deliver(self, *frames: bytes) -> None:
        """A message arrives."""
        self.world.scheduler.point("a message arrives")
        for number, frame in enumerate(frames, 1):
            self.incoming.append(_Frame(frame, number < len(frames)))
        self._changed = True

    def recv(self, flags: int, copy: bool = True) -> _Frame:
        self.use("receives")
        if not self.incoming:
            self.failed += 1
            raise zmq.Again
        return self.incoming.popleft()

    def send(self, message: bytes) -> None:
        self.use("sends")
        self.sent.append(message)
        if message[:1] == b"\1":
            self.subscribed.append(message[1:])
        elif message[:1] == b"\0":
            self.subscribed.remove(message[1:])

    def connect(self, address: str) -> None:
        self.use("connects")
        self.connected.append(address)

    def disconnect(self, address: str) -> None:
        self.use("disconnects")
        self.connected.remove(address)


class XpubDouble(_SocketDouble):
    """An XPUB socket; ``arrive`` is the network."""

    def __init__(self, world: World, zmq_double: ZmqDouble) -> None:
        super().__init__(world)
        self.sent: list[tuple[bytes, ...]] = []
        self._part: list[bytes] = []
        self._changed = False
        """Whether the descriptor is readable."""
        zmq_double.sources[id(self)] = lambda: self._changed

    def arrive(self, frame: bytes) -> None:
        """A subscription, or its end."""
        self.world.scheduler.point("a subscription arrives")
        self.incoming.append(_Frame(frame, False))
        self._changed = True

    def getsockopt(self, option: int) -> int:
        if option == zmq.FD:
            return id(self)
        self.use("looks for events")
        self._changed = False
        return int(zmq.POLLIN) if self.incoming else 0

    def send(self, frame: bytes, flags: int) -> None:
        self.use("sends a frame")
        self._changed = False
        self._part.append(frame)
        if not flags & int(zmq.SNDMORE):
            self.sent.append(tuple(self._part))
            self._part = []

    def recv(self, flags: int, copy: bool = True) -> _Frame:
        self.use("looks for a subscription")
        self._changed = False
        if not self.incoming:
            raise zmq.Again
        return self.incoming.popleft()


class PushDouble(_SocketDouble):
    """A PUSH socket: whole messages up to ``room``, then it is full."""

    room = 1000

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sent: list[tuple[bytes, ...]] = []
        self._part: list[bytes] = []
        self._sender: object = None
        """The thread that has sent a part of a message and not yet its end."""

    def connect(self, address: str) -> None:
        pass

    def send(self, frame: bytes, flags: int) -> None:
        self.use("pushes a frame")
        sender = self.world.scheduler.current
        self.world.check(self._sender in (None, sender), "frames of two messages are mixed")
        if not self._part and len(self.sent) >= self.room:
            raise zmq.Again
        self._part.append(frame)
        self._sender = sender
        if not flags & int(zmq.SNDMORE):
            self.sent.append(tuple(self._part))
            self._part, self._sender = [], None

    def poll(self, milliseconds: float, flags: int) -> int:
        self.use("looks for room")
        until = self.world.now + milliseconds / 1000
        return int(self.world.scheduler.block("room", lambda: len(self.sent) < self.room, until))


class PullDouble(SubDouble):
    """A PULL socket; ``deliver`` is a worker."""

    def unbind(self, address: str) -> None:
        self.use("unbinds")

    def poll(self, milliseconds: float) -> int:
        self.use("looks for messages")
        until = self.world.now + milliseconds / 1000
        return int(self.world.scheduler.block("a message", lambda: bool(self.incoming), until))


class _ContextDouble:
    """``zmq.Context``."""

    def __init__(self, made: object = None) -> None:
        self._made = made

    def socket(self, kind: int) -> object:
        return self._made

    def term(self) -> None:
        pass


class EventDouble:
    """The module ``os``, whose eventfd ends a poll."""

    def __init__(self, world: World, zmq_double: ZmqDouble) -> None:
        self._world = world
        self._count = 0
        self.number = 1_000_000
        zmq_double.sources[self.number] = lambda: self._count > 0

    def eventfd_write(self, number: int, count: int) -> None:
        self._world.scheduler.point("writes to the eventfd")
        self._count += count
        self._world.scheduler.point("has written to the eventfd")

    def close(self, number: int) -> None:
        self._world.check(number == self.number, f"closes the descriptor {number}")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class NoLock:
    """``pubsub_lib.socket_lock.SocketLock``."""

    def release(self) -> None:
        pass


class ControlledPuller(IpcSubscriber):
    """The service's real end of the hop, with its receiving thread, around a double of its socket."""

    def __init__(self, world: World) -> None:
        super().__init__(Path("/nowhere"), Limits(), 1000)
        made = ZmqDouble(world)
        self.event = EventDouble(world, made)
        self.pull = PullDouble(world, made)
        world.replace("pubsub_zmq.multiproc.subscriber", "zmq", made)
        world.replace("pubsub_zmq.multiproc.subscriber", "os", self.event)

    def _open(self) -> Callable[[], None]:
        self._stop = self.event.number
        lock = cast("SocketLock", NoLock())
        return partial(self._run, cast("_Context", _ContextDouble()), cast("_Socket", self.pull), lock)


def pusher(world: World, *, wait: float) -> tuple[IpcPublisher, PushDouble]:
    """A worker's end of the hop, connected, and the double of its socket."""
    push = PushDouble(world)
    world.replace("pubsub_zmq.multiproc.publisher", "make_context", lambda: _ContextDouble(push))
    world.replace("pubsub_zmq.multiproc.publisher", "check_folder", lambda path: None)
    made = ZmqDouble(world)
    monitor = MonitorDouble(made)
    world.replace("pubsub_zmq.multiproc.publisher", "Monitor", lambda socket, events: monitor)
    world.replace("pubsub_zmq.multiproc.publisher", "signal_of", lambda socket: made.sources[socket])
    world.replace("pubsub_zmq.multiproc.publisher", "has_work", lambda signal: signal())
    publisher = IpcPublisher(Path("/nowhere"), Limits(), 1000, wait, 0.0)
    publisher.initialize(lambda ask: None, lambda: None)
    monitor.add(int(zmq.EVENT_HANDSHAKE_SUCCEEDED), "")
    return publisher, push


class ControlledSubscriber(ZmqSubscriber):
    """The real subscriber and its receiving thread around a double of its socket."""

    def __init__(self, world: World, zmq_double: ZmqDouble) -> None:
        super().__init__((), Limits(), ZmqOptions())
        self.sub = SubDouble(world, zmq_double)
        self.monitor = MonitorDouble(zmq_double)

    def _open(self) -> tuple[_Context, _Socket, Monitor]:
        return cast("_Context", _ContextDouble()), cast("_Socket", self.sub), cast("Monitor", self.monitor)


class ControlledPublisher(ZmqPublisher):
    """The real publisher and its two threads around a double of its socket."""

    def __init__(self, world: World, zmq_double: ZmqDouble, options: ZmqOptions) -> None:
        super().__init__("tcp://127.0.0.1:0", Limits(), options)
        self.xpub = XpubDouble(world, zmq_double)
        self.monitor = MonitorDouble(zmq_double)

    def _bind(self) -> tuple[_Context, _Socket, Monitor]:
        return cast("_Context", _ContextDouble()), cast("_Socket", self.xpub), cast("Monitor", self.monitor)


MODULES: Final = ("pubsub_zmq.receiver", "pubsub_zmq.publisher", "pubsub_zmq.subscriber")


def doubled(world: World) -> ZmqDouble:
    """Give the driver's modules the doubles for the rest of this run."""
    made = ZmqDouble(world)
    for name in MODULES:
        world.replace(name, "zmq", made)
        world.replace(name, "Waker", lambda: cast("Waker", WakerDouble(world, made)))
    world.replace("pubsub_zmq.sockets", "signal_of", lambda xpub: made.sources[id(xpub)])
    world.replace("pubsub_zmq.publisher", "has_work", lambda signal: signal())
    return made
