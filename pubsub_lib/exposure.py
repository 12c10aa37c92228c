"""The rule for every listener: an address that others can reach needs keys, or ``insecure = true``.

A publisher with keys is not checked here, because it accepts only known clients. Any other listener on anything but
loopback is refused unless the operator sets the option, and then each start logs a warning. The socket of the workers
is not checked either: its driver demands a private folder, also with the option.
"""

import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pubsub_lib.errors import ConfigError
from pubsub_lib.logs import logger

_log = logger(__name__)

PUBLISHER: Final = "publisher_bind_address in [pubsub]"
"""The option that sets a publisher's address, for messages."""
_INTERNAL: Final = ("", "memory", "inproc")
"""Schemes of addresses within one process; "": no address."""
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH

Listeners = Mapping[str, str]
"""Listening addresses (``scheme://host:port`` or ``ipc:///path``) by the options that set them."""


def check(listeners: Listeners, insecure: bool) -> None:
    """Refuse (ConfigError) listeners that others can reach, unless ``insecure``. Any thread; no name is looked up."""
    found = _exposed(listeners)
    if found and not insecure:
        raise ConfigError(
            f"others could reach {found}, and there are no keys; use a loopback address (for ipc: a folder in which no "
            "other user may write), set keys = true (for publishers), or set insecure = true in [pubsub] in a network "
            "that only trusted hosts can use"
        )


def warn(listeners: Listeners, insecure: bool) -> None:
    """Check, and log a warning for listeners that are allowed only by ``insecure``. Call it at each start."""
    check(listeners, insecure)
    if found := _exposed(listeners):
        _log.warning("insecure = true: without keys, others can reach %s; let only trusted hosts do so", found)


def is_exposed(address: str) -> bool:
    """Whether other hosts can reach this address, or other users can replace the socket at its path. A host name other
    than ``localhost`` counts as exposed, because it is not looked up.
    """
    scheme, _, rest = address.partition("://")
    if scheme in _INTERNAL:
        return False
    return _others_may_write(Path(rest)) if scheme == "ipc" else not is_loopback(rest)


def is_loopback(rest: str) -> bool:
    """Whether "host:port" is a loopback address, which other hosts cannot reach."""
    return is_loopback_host(rest.rpartition(":")[0])


def is_loopback_host(host: str) -> bool:
    """The same for a host without a port."""
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host == "localhost"
    # An IPv6 socket shows an IPv4 peer as ::ffff:127.0.0.1, which ``is_loopback`` does not accept.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _exposed(listeners: Listeners) -> str:
    return ", ".join(f"{address} ({option})" for option, address in listeners.items() if is_exposed(address))


def _others_may_write(path: Path) -> bool:
    """Whether another user may put a socket at this path. In a folder with the sticky bit others may create files, but
    not rename folders of this user. A missing folder is not checked; the check at the start finds it.
    """
    folder = Path(os.path.realpath(path.parent))
    for each in (folder, *folder.parents):
        try:
            found = each.stat()
        except OSError:
            continue
        sticky = each != folder and found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or (found.st_mode & _WRITABLE and not sticky):
            return True
    return False
