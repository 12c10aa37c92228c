"""Bounds the number of connections of a publisher's socket, so that strangers cannot use up the open files.

libzmq has no such limit. It ends the process when a worker connects over a Unix socket and no file is left ("Too many
open files", ipc_listener.cpp of 4.3.5), and it cannot stop accepting without giving up the port, which another local
program could then bind. So the kernel drops new connections, by a filter on the listening socket: the port stays bound,
connections that are open are unaffected, and dropped ones are retried by their programs.
"""

import ctypes
import os
import resource
import socket
import struct
import threading
from typing import Final

import zmq

from pubsub_lib.logs import logger
from pubsub_zmq import addresses

_log = logger(__name__)

_SHARE_OF_FILES: Final = 2
"""Connections get at most this part (1/2) of the limit of open files; workers, the database and others the rest."""
_AGAIN: Final = 0.9
"""Share of the maximum below which new connections are accepted again."""
_ATTACH_FILTER, _DETACH_FILTER = 26, 27  # SO_ATTACH_FILTER and SO_DETACH_FILTER, which Python does not name
_DROP_ALL: Final = struct.pack("HBBI", 6, 0, 0, 0)  # one instruction: accept 0 bytes of the packet


def maximum_of(wanted: int) -> int:
    """The maximum number of connections: ``wanted``, but no more than half of this process's limit of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, files // _SHARE_OF_FILES))


def backlog_of(maximum: int) -> int:
    """The maximum number of connections that wait to be accepted: they are accepted even when the limit is reached."""
    return max(16, min(1024, maximum // 4))


class ConnectionLimit:
    """Follows the events of one listening socket. One thread, and :meth:`hold` another one."""

    def __init__(self, address: str, maximum: int) -> None:
        self.address = address
        """For the log; a publisher sets the bound one."""
        self.maximum = maximum
        self._open: set[int] = set()
        """The descriptors of the accepted connections."""
        self._listening: socket.socket | None = None
        self._limited = self._held = False
        self._dropping = False
        """Whether the listening socket has the filter."""
        self._lock = threading.Lock()
        """Of the listening socket, ``_dropping``, ``_limited`` and ``_held``."""
        self._bound_to: object = None
        self.counts = {"accepted": 0, "limited": 0, "ended": 0, "held": 0, "unfinished": 0, "unread": 0}

    def event(self, event: int, descriptor: int) -> None:
        """An event of ZeroMQ's monitor, with its descriptor. Others than those of connections are ignored."""
        if event == zmq.EVENT_LISTENING:
            self._listens(descriptor)
        elif event == zmq.EVENT_ACCEPTED:
            self.counts["accepted"] += 1
            self._open.add(descriptor)
            if len(self._open) >= self.maximum and not self._limited:
                self._limit()
        elif event == zmq.EVENT_DISCONNECTED:
            self._open.discard(descriptor)
            if self._limited and len(self._open) <= self.maximum * _AGAIN:
                self._accept_again()

    def _listens(self, descriptor: int) -> None:
        try:
            listening = socket.socket(fileno=os.dup(descriptor))
        except OSError as error:
            _log.error(
                "cannot limit the connections to %s: %s; raise this process's limit of open files",
                self.address,
                error.strerror,
            )
            return
        self._bound_to = _local(listening)
        if not self.address.startswith(addresses.TCP):
            listening.close()  # the kernel has no filter for it
            return
        with self._lock:
            self._listening = listening
            self._apply()

    def end(self, descriptor: int) -> bool:
        """End an accepted connection; False when it has ended already. ZeroMQ then finds it closed by its peer."""
        if descriptor not in self._open or self._bound_to is None:
            return False
        try:
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                # ZeroMQ may have closed it meanwhile, and another file may have its number.
                if _local(connection) != self._bound_to:
                    return False
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False  # closed, or no socket
        self.counts["ended"] += 1
        return True

    def close(self) -> None:
        """Release the listening socket, which would otherwise keep the port bound. Idempotent."""
        with self._lock:
            if self._listening is not None:
                self._listening.close()
                self._listening = None
            self._dropping = False

    def hold(self, wanted: bool) -> None:
        """Drop new connections meanwhile, or accept them again. Any thread."""
        with self._lock:
            if wanted and not self._held:
                self.counts["held"] += 1
            self._held = wanted
            self._apply()

    def renewed(self) -> int:
        """The socket was closed, and another one will listen. Returns the number of connections that ended with it."""
        ended = len(self._open)
        self.close()
        self._open.clear()
        self._limited = False
        self._bound_to = None
        return ended

    def _limit(self) -> None:
        with self._lock:
            self._limited = True
            self._apply()
            refused = self._dropping
        self.counts["limited"] += 1
        _log.warning(
            "%d connections are open at %s, the maximum (max_connections, or half of this process's limit of open "
            "files): %s; see which hosts hold them, and let a firewall refuse strangers",
            len(self._open),
            self.address,
            "new ones are not accepted" if refused else "new ones cannot be refused at this address",
        )

    def _accept_again(self) -> None:
        with self._lock:
            self._limited = False
            self._apply()
        _log.warning("new connections to %s are accepted again: %d are open", self.address, len(self._open))

    def _apply(self) -> None:
        """Give the listening socket the filter, or take it away. Under the lock."""
        wanted = self._limited or self._held
        if self._listening is None or wanted == self._dropping:
            return
        code = ctypes.create_string_buffer(_DROP_ALL)
        attached = _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code))
        option, value = attached if wanted else (_DETACH_FILTER, struct.pack("i", 0))
        try:
            self._listening.setsockopt(socket.SOL_SOCKET, option, value)
        except OSError as error:
            _log.error("the kernel refuses a filter for connections to %s: %s", self.address, error.strerror)
            return
        self._dropping = wanted


def _local(made: socket.socket) -> object:
    """What a listening socket and the connections that it accepted have in common: the port, or the path."""
    name = made.getsockname()
    return name[1] if isinstance(name, tuple) else name
