"""Making and unmaking ZeroMQ's sockets; the only place that knows its options, and where its errors are translated."""

import socket
from collections.abc import Iterator
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import TransportError
from pubsub_zmq.settings import ZmqOptions

MAX_QUESTION_BYTES: Final = 2 * 1024
"""Of one question's subscription. ZeroMQ keeps a subscription as one node a byte, 40 bytes of memory each, and takes
them down recursively: 250,000 bytes overflow the stack and end the process, the publisher's included (measured on
libzmq 4.3.5). The longest subscription to a topic has 257."""

_Socket = zmq.Socket[bytes]

# A handshake that fails is followed by DISCONNECTED.
_EVENTS: Final = zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED


def translated(error: zmq.ZMQError, what: str, way_out: str) -> TransportError:
    """Our error for one of ZeroMQ's; raise it ``from`` the original."""
    reason = zmq.strerror(error.errno or 0) if error.errno else str(error)
    return TransportError(f"{what}: {reason}; {way_out}")


def make_xpub(context: "zmq.Context[_Socket]", options: ZmqOptions) -> _Socket:
    """A socket that sends by prefix and sees subscriptions. Raises zmq.ZMQError."""
    made = context.socket(zmq.XPUB)
    made.setsockopt(zmq.SNDHWM, options.send_hwm)
    # Subscriptions must not be limited: of a burst of 100,000 the default shows 1,000, silently.
    made.setsockopt(zmq.RCVHWM, 0)
    # What comes in is subscriptions; who sends a longer one is disconnected.
    made.setsockopt(zmq.MAXMSGSIZE, MAX_QUESTION_BYTES + 256)
    made.setsockopt(zmq.BACKLOG, 1024)
    # Longer than a subscriber's own patience: what is kept for one that is paused is not thrown away at once.
    _common(made, options, options.tcp_user_timeout)
    return made


def make_sub(context: "zmq.Context[_Socket]", options: ZmqOptions, limits: Limits) -> _Socket:
    """A socket that receives what it subscribed to. Raises zmq.ZMQError."""
    made = context.socket(zmq.SUB)
    made.setsockopt(zmq.RCVHWM, options.receive_hwm)
    made.setsockopt(zmq.SNDHWM, 0)  # of subscriptions, as above
    # Twice, so that what is a little too large is read, counted and dropped; beyond that the connection ends for good.
    made.setsockopt(zmq.MAXMSGSIZE, 2 * limits.max_frame_bytes)
    made.setsockopt(zmq.RECONNECT_IVL, _ms(options.reconnect_interval))
    made.setsockopt(zmq.RECONNECT_IVL_MAX, _ms(options.max_reconnect_interval))
    made.setsockopt(zmq.CONNECT_TIMEOUT, _ms(options.connect_timeout))
    _common(made, options, options.max_silence)
    return made


def _common(made: _Socket, options: ZmqOptions, user_timeout: int) -> None:
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.HANDSHAKE_IVL, _ms(options.connect_timeout))
    # The system looks for peers that vanished, and ZMTP's heartbeats stay off, at both ends: libzmq ends the process of
    # a subscriber whose queue was full while a heartbeat ran out, or whose publisher left then (issues 3937, 4364 and
    # 4767: "Assertion failed: _input_stopped", "!_io_error"). A peer that stands still while its system answers is seen
    # by the hellos that it does not send.
    made.setsockopt(zmq.HEARTBEAT_IVL, 0)
    made.setsockopt(zmq.TCP_KEEPALIVE, 1)
    made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, options.tcp_keepalive_idle)
    made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, options.tcp_keepalive_interval)
    made.setsockopt(zmq.TCP_KEEPALIVE_CNT, options.tcp_keepalive_count)
    # Probes rest while data waits for its acknowledgement; this bounds that wait as well, also of a peer whose window
    # is closed. Linux gives up by it alone, whatever the number of probes is.
    made.setsockopt(zmq.TCP_MAXRT, 1000 * user_timeout)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class Monitor:
    """The events of one socket's connections. Belongs to the thread that the socket belongs to."""

    def __init__(self, watched: _Socket) -> None:
        """Raises zmq.ZMQError."""
        self._watched = watched
        where = "inproc://monitor"  # every socket of this driver has a context of its own
        watched.monitor(where, _EVENTS)
        self.socket = watched.context.socket(zmq.PAIR)
        # A full monitor would stop ZeroMQ's own thread, for instance while a callback takes long.
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.connect(where)

    def events(self) -> Iterator[tuple[int, str]]:
        """(event, endpoint) of all that happened; does not wait."""
        while self.socket.poll(0):
            message = recv_monitor_message(self.socket)
            yield int(message["event"]), message["endpoint"].decode(errors="replace")

    def close(self) -> None:
        """Stop watching. Must come before the context's end, which would wait for it for ever."""
        self._watched.monitor(None, 0)
        self.socket.close(0)


class Waker:
    """Lets any thread end another's ``poll``: one end of a socket pair is polled, the other is written to."""

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
        """What to poll for reading."""
        return self._read.fileno()

    def wake(self) -> None:
        """End the current or the next ``poll``. Any thread, also after :meth:`close`."""
        try:
            self._write.send(b"\0")
        except OSError:
            pass  # full: it will wake up anyway; closed: nobody is there to wake

    def clear(self) -> None:
        """Take back what woke the thread."""
        try:
            self._read.recv(4096)
        except OSError:
            pass  # nothing there

    def close(self) -> None:
        """Idempotent."""
        self._read.close()
        self._write.close()
