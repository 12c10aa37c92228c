"""Checks of ``publisher-service --check --connect``: database, name, driver, folders, sockets and ports, used as by the
service.

The checks leave no table, no file, no folder, and no listener. They send no message.
"""

import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import URL

from pubsub_lib import loader
from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.errors import PubSubError, StoreUnavailable, TransportError
from pubsub_lib.logs import logger
from pubsub_lib.port_owner import owner_of_lock, owner_of_port
from pubsub_lib.publisher.opening import is_bound
from pubsub_lib.service.name_conflicts import RENEWALS, Renewals, conflict
from pubsub_lib.service.writing import reason_of, try_making, try_opening, try_writing
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store, administration, sqlite, url
from pubsub_lib.store.directory import Directory
from pubsub_lib.store.host_commit import socket_of

_log = logger(__name__)

CONNECT_TIMEOUT: Final = 2.0
"""Seconds to find out whether a process listens at a socket file."""
_PAUSE: Final = 0.2
"""Seconds between two readings of the directory."""
_EVERY: Final = ("*", "0.0.0.0")  # noqa: S104 - recognized


def failures(settings: Settings, service: ServiceSettings) -> Iterator[PubSubError]:
    """The resources that the service could not use if it started now; each error names the resource and the remedy.

    StoreError for the database, ConfigError for a name that a live service has, TransportError for all else. Blocks for
    the timeouts of the database and the driver, for 2 s a socket, and while the directory has an entry of this name:
    until its lease was renewed, or expires. Raises DriverError, ConfigError for settings that were not checked
    before.
    """
    if service.role == STANDBY:
        yield from _tried(_copy, settings)
    elif settings.store_url:  # a relay may have none
        yield from _tried(_database, settings)
    if _connects(settings, service):
        yield from _tried(_driver, settings)
    if settings.journal.folder and service.role != STANDBY:
        yield from _tried(_folder, Path(settings.journal.folder), "journal_folder")
    if settings.multiproc_driver and settings.multiproc_socket and service.role != RELAY:
        yield from _tried(_socket_file, Path(settings.multiproc_socket), "publisher_multiproc_socket", True)
    if settings.group_commit == "host":
        yield from _tried(_socket_file, socket_of(settings), "publisher_multiproc_socket", True)
    scheme, _, rest = settings.bind_address.partition("://")
    if is_bound(settings) and scheme == "ipc":
        yield from _tried(_socket_file, Path(rest), "publisher_bind_address", False)
    if is_bound(settings) and scheme == "tcp":
        host, _, port = rest.rpartition(":")
        yield from _tried(_port, host, int(port), "publisher_port")
    if service.metrics_port > 0:
        yield from _tried(_port, service.metrics_address, service.metrics_port, "metrics_port")


def tested(settings: Settings, service: ServiceSettings) -> str:
    """The resources that ``failures`` tries, for people. Raises DriverError."""
    if service.role == STANDBY:
        return "database and port"
    database, driver = "database, " if settings.store_url else "", "driver, " if _connects(settings, service) else ""
    return f"{database}{driver}folders, sockets and ports"


def _connects(settings: Settings, service: ServiceSettings) -> bool:
    """Whether the driver connects to a server of its own. Others bind ports, or use the database."""
    carries = loader.load(settings.driver).capabilities.carries_envelopes
    return service.role != STANDBY and not is_bound(settings) and carries


def _tried(probe: Callable[..., None], *arguments: object) -> Iterator[PubSubError]:
    try:
        probe(*arguments)
    except PubSubError as error:
        yield error


def _database(settings: Settings) -> None:
    parsed = url.parse(settings.store_url)
    if parsed.get_backend_name() == "sqlite" and not _database_file(parsed):
        return  # the service makes the file at its start
    once = msgspec.structs.replace(settings.store, retry_attempts=1)
    if administration.revision(settings.store_url, settings=once) is None:
        administration.require_create(settings.store_url, settings=once)
        return  # it answers; the service makes the tables at its start
    with Store(msgspec.structs.replace(settings, store=once), create=False) as store:
        # Locks the counter's row, as every writer does, and releases it.
        store.committed(store.read_heads([]).store.nonce)
        _name(settings.service_name, store.directory)


def _name(service: str, directory: Directory) -> None:
    """Raises ConfigError if a live service or publisher has this name: its entry is renewed. The entry of a killed one
    is not, and expires.
    """
    renewals = Renewals()
    until = None
    while entries := [each for each in directory.live() if each.service == service]:
        counts = renewals.seen(entries)
        for each in entries:
            if counts[each.uuid] >= RENEWALS:
                raise conflict(each)
        if until is None:
            left = max(each.seconds_left for each in entries)
            until = time.monotonic() + left + _PAUSE
            _log.info(
                "a service %r is registered at %s; waiting for at most %.0f s until it renews its lease, or the lease "
                "of a killed service expires",
                service,
                entries[0].address or "no address",
                left,
            )
        elif time.monotonic() >= until:
            raise conflict(entries[0])  # it began meanwhile, or its lease would have expired
        time.sleep(_PAUSE)


def _driver(settings: Settings) -> None:
    """Connect as the service does. A publisher that is opened and closed sends no message."""
    sender = loader.load_publisher(settings)
    try:
        sender.initialize(lambda ask: None, lambda: None)
    finally:
        sender.close()


def _copy(settings: Settings) -> None:
    once = msgspec.structs.replace(settings.store, retry_attempts=1)
    with Store(msgspec.structs.replace(settings, store=once), read_only=True) as store:
        store.read_heads(())


def _database_file(database: URL) -> bool:
    """Whether the SQLite file exists; then it can be written, else it can be created.

    Tried before SQLite opens it: SQLite would open a read-only file, and leave its -wal and -shm beside it.
    """
    path = sqlite.path_of(database)
    try:
        if try_opening(path):
            return True
    except OSError as error:
        raise StoreUnavailable(
            f"the SQLite file {str(path)!r} of store_url cannot be written ({reason_of(error)}); let the service's "
            "user write it, or correct store_url"
        ) from error
    if not sqlite.may_create(database):
        raise StoreUnavailable(
            f"the SQLite file {str(path)!r} of store_url is missing, and is not created with mode="
            f"{database.normalized_query['mode'][0]} in the URL; remove mode from store_url, or correct the path"
        )
    try:
        try_writing(Path(os.path.realpath(path)).parent)  # of a dangling link: the file is created at its target
    except OSError as error:
        raise StoreUnavailable(
            f"the SQLite file {str(path)!r} of store_url cannot be made ({reason_of(error)}); correct store_url, or "
            "make the folder and let the service's user write in it"
        ) from error
    return False


def _folder(folder: Path, option: str) -> None:
    try:
        try_making(folder)
    except OSError as error:
        raise TransportError(
            f"nothing can be written in {str(folder)!r} ({reason_of(error)}); let the service's user write there, or "
            f"set {option} to another folder"
        ) from error


def _socket_file(path: Path, option: str, private: bool) -> None:
    """``private``: the folder must belong to the service, which creates a missing one."""
    way_out = f"set {option} to a path in a folder of the service's own"
    try:
        if private and not path.parent.is_dir():
            try_making(path.parent)
            return
        found = path.parent.lstat() if private else path.parent.stat()
        if stat.S_ISLNK(found.st_mode):
            raise TransportError(f"the folder {str(path.parent)!r} of {option} is a symbolic link; {way_out}")
        if private and (found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077):
            raise TransportError(
                f"the folder {str(path.parent)!r} of {option} must belong to the service's user, with mode 0700; "
                f"{way_out}"
            )
        try_writing(path.parent)
        if holder := owner_of_lock(Path(f"{path}.lock")):  # as the drivers lock the socket before they bind it
            raise TransportError(
                f"the socket {str(path)!r} of {option} is held by {holder}; stop that service, or {way_out}"
            )
        if not path.exists():
            return
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise TransportError(f"{option} is {str(path)!r}, which is a file and not a socket; {way_out}")
    except OSError as error:
        raise TransportError(
            f"the socket {str(path)!r} of {option} cannot be made ({reason_of(error)}); {way_out}"
        ) from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CONNECT_TIMEOUT)
        with suppress(OSError):  # no process listens: a dead service left the file
            client.connect(str(path))
            raise TransportError(
                f"another process listens at {str(path)!r}; stop that service, or set {option} to another path"
            )


def _port(host: str, port: int, option: str) -> None:
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("" if bare in _EVERY else bare, port))
            listener.listen(1)
    except OSError as error:
        raise TransportError(f"{host}:{port} cannot be bound: {_refused(error, port)} ({option})") from error


def _refused(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = owner_of_port(port)
        return f"the port is held by {holder}; stop it, or take another port" if holder else "another process holds it"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return "this host has no such address; correct the address"
    return f"{error.strerror or error}; take another address or port"
