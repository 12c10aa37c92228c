"""ZeroMQ's addresses: reject invalid ones early, with a clear error. ZeroMQ rejects some late or misreads them, and
lets a second process bind the path of an ipc address.
"""

import ipaddress
import os
from pathlib import Path
from typing import Final

from pubsub_lib.errors import ConfigError
from pubsub_lib.socket_lock import SocketLock

TCP: Final = "tcp://"
IPC: Final = "ipc://"
MAX_IPC_BYTES: Final = 107
"""The maximum size of a Unix socket's path, without its final NUL."""


def check(address: str, *, bind: bool = False) -> None:
    """Raise ConfigError for an address that is neither ``tcp://host:port`` nor ``ipc:///path``. ``bind`` allows ``*``
    for the host and the port. Any thread, does not block: host names are not resolved.
    """
    if address.startswith(TCP):
        host, _, port = address.removeprefix(TCP).rpartition(":")
        number = int(port) if port.isascii() and port.isdecimal() else -1
        good = 0 < number < 65536 or (bind and (port == "*" or number == 0))
        if good and host and (bind or host != "*") and not any(each.isspace() or each in "/\0" for each in host):
            return
        raise ConfigError(f"the address {address!r} is not tcp://host:port; correct its host or its port (1 to 65535)")
    if address.startswith(IPC):
        path = path_of(address)
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            size = 0
        if 0 < size <= MAX_IPC_BYTES and "\0" not in path and path[0] != "@":
            return
        raise ConfigError(
            f"the address {address!r} is not ipc:// with the path of a socket (1 to {MAX_IPC_BYTES} bytes); shorten it"
        )
    raise ConfigError(f"the address {address!r} begins with neither tcp:// nor ipc://; write tcp://host:port")


def path_of(address: str) -> str:
    """Return the path of an ``ipc://`` address."""
    return address.removeprefix(IPC)


def lock_of(address: str) -> SocketLock | None:
    """Lock the path of a publisher's ipc address; None for a tcp address. Raises as :class:`SocketLock`."""
    if not address.startswith(IPC):
        return None
    return SocketLock(Path(path_of(address)), "publisher_bind_address")


def port_of(address: str) -> str:
    """Return the port of a ``tcp://`` address; "" for other addresses."""
    return address.rpartition(":")[2] if address.startswith(TCP) else ""


def is_ipv6(address: str) -> bool:
    """Whether the host is a literal of IP version 6."""
    return address.startswith(f"{TCP}[")


def same_port(address: str, other: str) -> bool:
    """Whether both are ``tcp://`` with the same port, as a number."""
    one, two = port_of(address), port_of(other)
    return one.isdecimal() and two.isdecimal() and int(one) == int(two)


def is_fixed(address: str) -> bool:
    """Whether ZeroMQ's monitor always names the address as it was given. From the first retry on, the monitor replaces
    a host name by the address that the name was resolved to.
    """
    return not address.startswith(TCP) or (_is_ipv4(address) and port_of(address) == str(int(port_of(address))))


def _is_ipv4(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address.removeprefix(TCP).rpartition(":")[0])
    except ValueError:
        return False
    return True
