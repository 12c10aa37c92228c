"""A lock beside a socket file: ZeroMQ silently lets a second process bind a path that is in use, and a file that a dead
process left does not show whether it is in use.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from pubsub_lib.errors import TransportError
from pubsub_lib.port_owner import holder_named_in


class SocketLock:
    """The exclusive right to bind one socket path: held from construction until :meth:`release`, or until the process
    ends in any way. A forked child that outlives the process keeps the lock until it calls :meth:`drop_copy` or ends.
    """

    def __init__(self, path: Path, option: str) -> None:
        """Lock ``<path>.lock``. Does not block.

        ``option``: the option that sets the path. Raises TransportError when another process holds the lock (with its
        name), or when the file cannot be opened, belongs to another user, or lies on a file system without locks. Also
        when the path exists and is not a socket.
        """
        name = f"{path}.lock"
        elsewhere = f"set {option} to another path"
        _refuse_other_files(path, elsewhere)
        try:
            self._fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise TransportError(
                f"the lock file {name!r} cannot be opened ({error.strerror}); create its folder, writable for this "
                f"user, or {elsewhere}"
            ) from error
        owner = os.fstat(self._fd).st_uid
        if owner != os.geteuid():  # root may open every file, and would write into a file that another user put there
            self.drop_copy()
            raise TransportError(
                f"the lock file {name!r} belongs to user {owner}, not to {os.geteuid()}; remove it when no process "
                f"uses it, or {elsewhere}"
            )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = holder_named_in(self._fd)
            self.drop_copy()
            raise TransportError(
                f"the socket {str(path)!r} is held by {holder}; stop that process, or {elsewhere}"
            ) from error
        except OSError as error:
            self.drop_copy()
            raise TransportError(
                f"the file system does not lock {name!r} ({error.strerror}); set {option} to a path on a local one"
            ) from error
        with contextlib.suppress(OSError):  # a full disk: the lock is held, and only the name of its holder is missing
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Unlock, for copies in forked processes too. Idempotent.

        The file stays: if it were removed, two processes could lock two files of the same name.
        """
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.drop_copy()

    def drop_copy(self) -> None:
        """In a forked child: close the inherited copy, so that the lock ends with the parent. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _refuse_other_files(path: Path, elsewhere: str) -> None:
    """Raise TransportError for anything but a socket at the path: the lock's owner would delete it."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # nothing is there, or the lock file cannot be opened either
    if not stat.S_ISSOCK(mode):
        raise TransportError(f"{str(path)!r} exists and is not a socket; remove it if it is not needed, or {elsewhere}")
