"""The location of the workers' socket: a checked path and a private folder."""

import os
import stat
from pathlib import Path
from typing import Final

from pubsub_lib.errors import ConfigError, TransportError

SCHEME: Final = "ipc://"
OPTION: Final = "publisher_multiproc_socket"
"""The option that sets the path."""
MAX_BYTES: Final = 107
"""The size of a path in ``sockaddr_un``. libzmq's error does not name a path that is too long."""


def path_of(address: str) -> Path:
    """Return the socket's path in ``ipc:///folder/name``. Raises ConfigError."""
    path = address.removeprefix(SCHEME)
    if path == address or not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ConfigError(
            f"the address {address!r} of the worker socket is not an {SCHEME}/absolute/path of a file; "
            "set publisher_multiproc_socket to such a path"
        )
    size = len(os.fsencode(path))
    if size > MAX_BYTES:
        raise ConfigError(
            f"the socket path {path!r} has {size} bytes but the system allows {MAX_BYTES}; "
            "set publisher_multiproc_socket to a shorter path"
        )
    return Path(path)


def make_folder(path: Path) -> None:
    """Create the socket's folder with access for its owner only (0700), unless it exists. Raises TransportError."""
    folder = path.parent
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass  # the checks below decide whether it can be used
    except OSError as error:
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket cannot be created ({error.strerror}); "
            "create it, owned by the service's user and with mode 0700, or set publisher_multiproc_socket"
        ) from error
    check_folder(path)
    try:
        found = folder.lstat()
    except OSError as error:
        raise TransportError(f"the folder {str(folder)!r} of the worker socket is gone ({error.strerror})") from error
    # Root may enter every folder: without this check, it would bind and write in a folder that another user chose.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket is a link, or belongs to user {found.st_uid} and not to "
            f"the service's {os.geteuid()}; set publisher_multiproc_socket to a path in a folder of its own"
        )


def check_folder(path: Path) -> None:
    """Raise TransportError when another user could create or remove a socket in the folder. It may be missing."""
    folder = path.parent
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket cannot be read ({error.strerror}); "
            "run workers and service as one user"
        ) from error
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket is open to others (mode {mode:04o}); "
            + (
                f"run: chmod 700 {folder}"
                if _alone(path, mode)
                else "set publisher_multiproc_socket to a path in a folder of its own"
            )
        )
    if os.geteuid() not in (0, found.st_uid):
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket belongs to user {found.st_uid}; "
            "run workers and service as one user"
        )


def _alone(path: Path, mode: int) -> bool:
    """Whether the folder is used for nothing else, so that it may be made private; /tmp, for example, may not."""
    try:
        others = {each.name for each in path.parent.iterdir()} - {path.name, f"{path.name}.lock"}
    except OSError:
        return False
    return not others and not mode & stat.S_ISVTX
