"""Where the socket lies: a checked path, a folder that is ours alone, and a lock against a second service.

libzmq lets a second process bind a live ipc path without a word, and takes the messages away from the first. So who
binds holds an exclusive lock on a file beside the socket; the system releases it when its holder dies.
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
"""What ``sockaddr_un`` has room for. libzmq does not say which path was too long."""


def path_of(address: str) -> Path:
    """The socket's path in ``ipc:///folder/name``. Raises ConfigError."""
    path = address.removeprefix(SCHEME)
    if path == address or not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ConfigError(
            f"the address {address!r} of the worker socket is no {SCHEME}/absolute/path of a file; "
            "set publisher_multiproc_socket to one"
        )
    size = len(os.fsencode(path))
    if size > MAX_BYTES:
        raise ConfigError(
            f"the socket path {path!r} has {size} bytes but the system takes {MAX_BYTES}; "
            "set publisher_multiproc_socket to a shorter one"
        )
    return Path(path)


def make_folder(path: Path) -> None:
    """Make the socket's folder, for its owner alone (0700), unless it is there. Raises TransportError."""
    folder = path.parent
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass  # whoever made it, the check below looks at it
    except OSError as error:
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket cannot be made ({error.strerror}); "
            "make it, owned by the service's user and with mode 0700, or set publisher_multiproc_socket"
        ) from error
    check_folder(path)
    try:
        found = folder.lstat()
    except OSError as error:
        raise TransportError(f"the folder {str(folder)!r} of the worker socket is gone ({error.strerror})") from error
    # Root may enter every folder, and would bind and write where somebody else points to.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise TransportError(
            f"the folder {str(folder)!r} of the worker socket is a link, or belongs to user {found.st_uid} and not to "
            f"the service's {os.geteuid()}; set publisher_multiproc_socket to a path in a folder of its own"
        )


def check_folder(path: Path) -> None:
    """Refuse (TransportError) a folder in which somebody else could put or take a socket; a missing one passes."""
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
    """Whether the folder serves nothing else, so that to close it to others breaks nothing (/tmp, for one)."""
    try:
        others = {each.name for each in path.parent.iterdir()} - {path.name, f"{path.name}.lock"}
    except OSError:
        return False
    return not others and not mode & stat.S_ISVTX


class SocketLock:
    """The exclusive right to bind one socket path. Held from the constructor to :meth:`release`, or until death.

    A forked child that outlives its parent keeps the lock with it: whoever binds should not fork.
    """

    def __init__(self, path: Path) -> None:
        """Raises TransportError, which names the holder, when another service has it. Does not block."""
        at = Path(f"{path}.lock")
        try:
            self._file = os.open(at, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise TransportError(
                f"the lock file {str(at)!r} cannot be opened ({error.strerror}); "
                "let the service's user write in its folder"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise TransportError(
                f"the worker socket {str(path)!r} is held by {_process(holder)}; "
                "stop that one, or set publisher_multiproc_socket to another path"
            ) from error
        except OSError as error:
            os.close(self._file)
            raise TransportError(
                f"the file system does not lock {str(at)!r} ({error.strerror}); set publisher_multiproc_socket to a "
                "path on a local one"
            ) from error
        # The file stays for ever: removing it would let two hold locks on two files of one name.
        with contextlib.suppress(OSError):  # a full disk: the lock holds, only its holder has no name
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one have it."""
        os.close(self._file)


def _process(pid: str) -> str:
    """What is known of a process, for a sentence."""
    if not pid.isdecimal():
        return "another process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    command = b" ".join(words).decode(errors="replace").strip()
    return f"process {pid} ({command[:120]})"
