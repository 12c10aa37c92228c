"""Notifies systemd of the service's state (sd_notify(3)): one datagram, no library."""

import os
import socket
from collections.abc import Mapping

from pubsub_lib.logs import logger

_log = logger(__name__)


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send for example ``READY=1``; False when no notification socket is set. Never raises, does not block."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux' abstract names
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("cannot notify systemd of %r at %r: %s", state, environment["NOTIFY_SOCKET"], error)
        return False
    return True


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often to send ``WATCHDOG=1`` (half of what systemd allows), or None when it does not watch."""
    given = environment.get("WATCHDOG_USEC", "")
    ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not ours or not given.isdecimal() or int(given) == 0:
        return None
    return int(given) / 2e6
