"""The socket's location: a checked path, a private folder, and a lock against a second service.

libzmq silently lets a second process bind a path that is in use, and the first process then gets no messages. So the
binding process holds an exclusive lock on a file beside the socket. The system releases it when the process ends.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from pubsub_lib.errors import ConfigError, TransportError

SCHEME: Final = "ipc://"
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


class SocketLock:
    """The exclusive right to bind one socket path. Held from the constructor to :meth:`release`, or to process exit.

    A forked child that outlives its parent keeps the lock held: a process that binds should not fork.
    """

    def __init__(self, path: Path) -> None:
        """Raises TransportError, which names the holder, when another service holds the lock. Does not block."""
        at = Path(f"{path}.lock")
        try:
            self._file = os.open(at, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise TransportError(
                f"the lock file {str(at)!r} cannot be opened ({error.strerror}); "
                "allow the service's user to write in its folder"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise TransportError(
                f"the worker socket {str(path)!r} is held by {_process(holder)}; "
                "stop that process, or set publisher_multiproc_socket to another path"
            ) from error
        except OSError as error:
            os.close(self._file)
            raise TransportError(
                f"the file system does not lock {str(at)!r} ({error.strerror}); set publisher_multiproc_socket to a "
                "path on a local file system"
            ) from error
        # The file is never removed: after a removal, two services could hold locks on two files of the same name.
        with contextlib.suppress(OSError):  # a full disk: the lock is held, but errors cannot name its holder
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._file)


def _process(pid: str) -> str:
    """Describe a process for an error message."""
    if not pid.isdecimal():
        return "another process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    command = b" ".join(words).decode(errors="replace").strip()
    return f"process {pid} ({command[:120]})"
