"""Creates ZeroMQ's sockets and sets their options; translates ZeroMQ's errors. No other module uses these options."""

import errno
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from pubsub_lib.core.limits import Limits
from pubsub_lib.curve_keys import KeyPair
from pubsub_lib.errors import TransportError
from pubsub_lib.port_owner import owner_of_port
from pubsub_lib.socket_lock import SocketLock
from pubsub_zmq import addresses
from pubsub_zmq.connection_limit import backlog_of, maximum_of
from pubsub_zmq.options import ZmqOptions

MAX_REQUEST_BYTES: Final = 2 * 1024
"""Maximum size of a hello request. A subscription may be as long, as those with keys are, and those of programs that
are no replicas. ZeroMQ stores it as one node a byte, with 40 bytes of memory each, and frees the nodes recursively:
250,000 bytes overflow the stack and end the process, also the publisher's (measured on libzmq 4.3.5)."""

MAX_UNAPPLIED: Final = 100
"""Number of subscriptions of one connection that wait at most."""
RECEIVE_BUFFER: Final = 64 * 1024
"""Bytes of subscriptions of one connection that wait in the system at most; Linux uses up to twice as many."""

ZAP_DOMAIN: Final = b"pubsub"

_Socket = zmq.Socket[bytes]

# A handshake that fails is followed by DISCONNECTED.
_EVENTS: Final = zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
LISTENER_EVENTS: Final = _EVENTS | zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED
"""The events of a socket that accepts connections."""
_CONNECTOR_EVENTS: Final = _EVENTS | zmq.EVENT_CONNECTED
REFUSED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
"""The publisher refused this client's key."""
UNPROVEN: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
"""The handshake failed in another way: the publisher has another key or none, or the connection was lost."""


def translated(error: zmq.ZMQError, what: str, way_out: str) -> TransportError:
    """Return a TransportError for an error of ZeroMQ; raise it ``from`` the original."""
    reason = zmq.strerror(error.errno or 0) if error.errno else str(error)
    return TransportError(f"{what}: {reason}; {way_out}")


def bind_error(error: zmq.ZMQError, address: str) -> TransportError:
    """Return the error for an address that a publisher cannot bind; raise it ``from`` the original."""
    what = f"cannot bind {address!r}"
    if error.errno == errno.EADDRINUSE:
        port = addresses.port_of(address)
        holder = owner_of_port(int(port)) if port.isdecimal() else ""
        by = f", held by {holder}" if holder else ""
        return translated(error, what, f"it is in use{by}: stop that process, or set another publisher_port")
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return translated(error, what, "this host has no such address: correct publisher_bind_address")
    return translated(error, what, "correct publisher_bind_address, or the rights on it")


def make_xpub(context: "zmq.Context[_Socket]", options: ZmqOptions) -> _Socket:
    """Make a socket that sends by topic prefix and reports subscriptions. Raises zmq.ZMQError."""
    made = context.socket(zmq.XPUB)
    made.setsockopt(zmq.SNDHWM, options.send_hwm)
    made.setsockopt(zmq.BACKLOG, backlog_of(maximum_of(options.max_connections)))
    # libzmq reads no more from a connection while this number of its subscriptions waits to be applied; none is
    # dropped. So what it must still apply after a pause (inflow_guard) is bounded, also by the system's own buffer.
    made.setsockopt(zmq.RCVHWM, MAX_UNAPPLIED)
    made.setsockopt(zmq.RCVBUF, RECEIVE_BUFFER)
    # Only subscriptions and hello requests arrive here. A subscriber that sends a longer one is disconnected.
    made.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES + 256)
    # Longer than a subscriber's own timeout, so that the frames buffered for a paused subscriber are not dropped early.
    _common(made, options, options.tcp_user_timeout)
    return made


def make_keyed_xpub(context: "zmq.Context[_Socket]", options: ZmqOptions, keys: KeyPair) -> _Socket:
    """The same for clients with keys: the context's handler of ZAP decides who may connect, and no subscription takes
    effect before its owner sets it again. Raises zmq.ZMQError.
    """
    made = make_xpub(context, options)
    made.setsockopt(zmq.XPUB_MANUAL, 1)
    made.setsockopt(zmq.CURVE_SERVER, 1)
    made.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    made.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    made.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
    made.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a handler no program may connect; the default is the reverse
    return made


def make_sub(
    context: "zmq.Context[_Socket]", options: ZmqOptions, limits: Limits, keys: KeyPair | None = None
) -> _Socket:
    """Make a socket that receives the subscribed messages and sends hello requests to all publishers; with ``keys``,
    each connection also needs :func:`expect_server` first. Raises zmq.ZMQError.

    XSUB, because a SUB socket sends nothing but subscriptions. It passes on all that a publisher sends.
    """
    made = context.socket(zmq.XSUB)
    if keys is not None:
        made.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
        made.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    made.setsockopt(zmq.RCVHWM, options.buffered_frames(limits.max_frame_bytes))
    # No limit for subscriptions: with the default, ZeroMQ silently drops all but 1,000 of a burst of 100,000.
    made.setsockopt(zmq.SNDHWM, 0)
    # Twice, so that a frame that is a bit too large is read, counted and dropped; a larger one ends the connection.
    made.setsockopt(zmq.MAXMSGSIZE, 2 * limits.max_frame_bytes)
    made.setsockopt(zmq.RECONNECT_IVL, _ms(options.reconnect_interval))
    made.setsockopt(zmq.RECONNECT_IVL_MAX, _ms(options.max_reconnect_interval))
    made.setsockopt(zmq.CONNECT_TIMEOUT, _ms(options.connect_timeout))
    _common(made, options, options.max_silence)
    return made


def expect_server(sub: _Socket, public_key: str) -> None:
    """The next ``connect`` accepts only the publisher with this key. Raises zmq.ZMQError."""
    sub.setsockopt(zmq.CURVE_SERVERKEY, public_key.encode())


def _common(made: _Socket, options: ZmqOptions, user_timeout: int) -> None:
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.HANDSHAKE_IVL, _ms(options.connect_timeout))
    # The operating system detects peers that vanished. ZMTP's heartbeats stay off at both ends, because libzmq ends the
    # process of a subscriber whose queue is full when a heartbeat times out or its publisher leaves (issues 3937, 4364
    # and 4767: "Assertion failed: _input_stopped", "!_io_error"). Missing hellos show a peer that hangs while its
    # system still answers.
    made.setsockopt(zmq.HEARTBEAT_IVL, 0)
    made.setsockopt(zmq.TCP_KEEPALIVE, 1)
    made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, options.tcp_keepalive_idle)
    made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, options.tcp_keepalive_interval)
    made.setsockopt(zmq.TCP_KEEPALIVE_CNT, options.tcp_keepalive_count)
    # TCP sends no probes while data waits for its acknowledgement. This option limits that wait, also for a peer whose
    # window is closed. With it, Linux ignores the number of probes.
    made.setsockopt(zmq.TCP_MAXRT, 1000 * user_timeout)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def signal_of(xpub: _Socket) -> select.poll:
    """For :func:`has_work` of this socket. Made once, because that takes longer than the look. Raises zmq.ZMQError."""
    made = select.poll()  # not select(), which fails from the descriptor 1,024 on
    made.register(int(xpub.getsockopt(zmq.FD)), select.POLLIN)
    return made


def has_work(signal: select.poll) -> bool:
    """Whether ZeroMQ's thread has passed something to the socket, such as subscriptions or ends of connections, which
    any call on the socket, also a send, has to do first. Does none of it. One thread at a time.
    """
    return bool(signal.poll(0))


class Monitor:
    """The events of one socket's connections. Only the socket's thread may use it."""

    def __init__(
        self, watched: _Socket, events: int = _CONNECTOR_EVENTS, *, keys: bool = False, where: str = "inproc://monitor"
    ) -> None:
        """``keys``: also report failed handshakes. ``where``: an address that is new in the socket's context. Raises
        zmq.ZMQError.
        """
        self._watched = watched
        watched.monitor(where, events | (REFUSED | UNPROVEN[0] | UNPROVEN[1] if keys else 0))
        try:
            self.socket = watched.context.socket(zmq.PAIR)
        except zmq.ZMQError:
            watched.monitor(None, 0)  # else the end of the context would block
            raise
        # A full monitor would block ZeroMQ's own thread, for example during a long callback.
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.connect(where)

    def fileno(self) -> int:
        """The descriptor to poll for reading. It only signals events after a look at all earlier ones."""
        return int(self.socket.getsockopt(zmq.FD))

    def events(self) -> Iterator[tuple[int, str, int]]:
        """Yield (event, endpoint, descriptor or other number) of all new events; does not wait."""
        while self.socket.poll(0):
            message = recv_monitor_message(self.socket)
            yield int(message["event"]), message["endpoint"].decode(errors="replace"), int(message["value"])

    def close(self) -> None:
        """Stop the monitor. Must be called before ``term`` of the context, which would otherwise block without end.
        Idempotent.
        """
        if self.socket.closed:
            return
        self._watched.monitor(None, 0)
        self.socket.close(0)


Bound = tuple["zmq.Context[_Socket]", _Socket, Monitor]
"""A publisher's context, its bound socket, and the socket's monitor."""


def bind(
    address: str,
    new_context: "Callable[[], zmq.Context[_Socket]]",
    new_socket: "Callable[[zmq.Context[_Socket]], _Socket]",
    end_context: "Callable[[zmq.Context[_Socket]], None]",
) -> tuple[Bound, SocketLock | None]:
    """Make a publisher's context and socket and bind this address; with the lock of its path, if it has one. Raises
    TransportError, and nothing stays open then.
    """
    with ExitStack() as undo:
        lock = addresses.lock_of(address)
        if lock is not None:
            undo.callback(lock.release)
        try:
            context = new_context()
            undo.callback(end_context, context)
            xpub = new_socket(context)
            undo.callback(xpub.close, 0)
            monitor = Monitor(xpub, LISTENER_EVENTS)
            undo.callback(monitor.close)
            xpub.setsockopt(zmq.IPV6, addresses.is_ipv6(address))
            xpub.bind(address)
        except zmq.ZMQError as error:
            raise bind_error(error, address) from error
        undo.pop_all()
    return (context, xpub, monitor), lock


class Waker:
    """Lets any thread end another thread's ``poll``: one end of a socket pair is polled, the other one is written."""

    def __init__(self) -> None:
        """Raises TransportError."""
        try:
            self._read, self._write = socket.socketpair()
        except OSError as error:
            raise TransportError(
                f"cannot make a socket pair: {error.strerror}; raise this process's limit of open files"
            ) from error
        self._read.setblocking(False)
        self._write.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._read.fileno()

    def wake(self) -> None:
        """End the current or the next ``poll``. Any thread, also after :meth:`close`."""
        try:
            self._write.send(b"\0")
        except OSError:
            pass  # full: the thread wakes up anyway; closed: the thread has ended

    def clear(self) -> None:
        """Reset the signal of ``wake``."""
        try:
            self._read.recv(4096)
        except OSError:
            pass  # no signal

    def close(self) -> None:
        """Idempotent."""
        self._read.close()
        self._write.close()


class InUse(NamedTuple):
    """A publisher's socket as its senders use it."""

    xpub: _Socket
    signal: select.poll
    """For :func:`has_work`."""
    waker: Waker
    """Of the sending thread."""


def in_use(xpub: _Socket, waker: Waker) -> InUse:
    """Make it. Raises zmq.ZMQError."""
    return InUse(xpub, signal_of(xpub), waker)
