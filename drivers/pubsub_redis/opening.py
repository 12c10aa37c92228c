"""Connections of the client library whose making another thread can end.

The library shows a socket only when it is connected and TLS was negotiated, so the sockets are opened here.
"""

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import redis

from pubsub_lib.config.driver_options import tls_context
from pubsub_lib.threads.name_lookup import NameLookup
from pubsub_redis.options import GROUP, TLS, UNIX, RedisOptions, Server

Keep = Callable[[socket.socket], None]
"""Called with each socket as soon as it connects: from then on, a shutdown of it ends all waits. May raise OSError."""


class _Opening:
    """Replaces the library's way to a connected socket. Its own class for TLS would accept the authorities of the
    system beside those of ``ca_file``."""

    opened: Callable[[], socket.socket]
    host: str
    tls: ssl.SSLContext | None = None

    def _connect(self) -> socket.socket:
        opened = self.opened()
        return self.tls.wrap_socket(opened, server_hostname=self.host) if self.tls else opened


class _TcpConnection(_Opening, redis.Connection):
    """With or without TLS."""


class _UnixConnection(_Opening, redis.UnixDomainSocketConnection):
    """Over a socket in the file system."""


def made(options: RedisOptions, server: Server, lookup: NameLookup, keep: Keep) -> Any:
    """A connection of the client library, not connected yet. ``lookup``: of the server's host. Raises ConfigError."""
    settings: dict[str, Any] = {
        "username": options.user or None, "password": options.password or None, "protocol": 3,
        "socket_timeout": options.timeout, "client_name": "pubsub_lib",
    }  # fmt: skip
    kind: Any  # the constructors have no types
    if server.scheme == UNIX:
        kind = _UnixConnection
        settings["path"] = server.path
    else:
        kind = _TcpConnection
        settings.update(host=server.host, port=server.port)
    connection = kind(**settings)
    if server.scheme == TLS:  # the files may have been renewed
        connection.tls = tls_context(options, GROUP)
    connection.opened = partial(_opened, options, server, lookup, keep)
    return connection


def _opened(options: RedisOptions, server: Server, lookup: NameLookup, keep: Keep) -> socket.socket:
    """A socket with a connection to the first address of the server that accepts one. Raises OSError."""
    addresses: list[tuple[int, Any]] = [(socket.AF_UNIX, server.path)]
    if server.scheme != UNIX:
        addresses = [(each[0], each[4]) for each in lookup.addresses(options.connect_timeout)]
    failure: OSError | None = None
    for family, address in addresses:
        try:
            opened = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # the system may lack this family, which explains no failure of another address
            failure = failure or error
            continue
        try:
            _connect(opened, address, options.connect_timeout, keep)
        except OSError as error:
            opened.close()
            failure = error
        else:
            opened.settimeout(options.timeout)
            return opened
    raise failure or OSError("no address")


def _connect(opened: socket.socket, address: Any, seconds: float, keep: Keep) -> None:
    if opened.family != socket.AF_UNIX:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    code = opened.connect_ex(address)
    keep(opened)
    if code == errno.EINPROGRESS:
        poller = select.poll()
        poller.register(opened, select.POLLOUT)
        if not poller.poll(1000 * seconds):
            raise TimeoutError
        code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
