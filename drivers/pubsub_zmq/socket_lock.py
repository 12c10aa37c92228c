"""A lock beside an ipc socket, because ZeroMQ silently lets a second process bind a path that is in use."""

import contextlib
import fcntl
import os

from pubsub_lib.errors import TransportError
from pubsub_lib.port_owner import describe


class IpcLock:
    """Held from construction until :meth:`release`, or until the process ends in any way."""

    def __init__(self, path: str) -> None:
        """Lock ``<path>.lock``. Does not block. Raises TransportError when another process holds the lock (with its
        name), or when the folder cannot be written."""
        self._name = f"{path}.lock"
        try:
            self._fd = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise TransportError(
                f"cannot create the lock {self._name!r}: {error.strerror}; create its folder, writable for this user"
            ) from error
        owner = os.fstat(self._fd).st_uid
        if owner != os.geteuid():  # root may open every file, and would write to another user's file
            os.close(self._fd)
            raise TransportError(
                f"the lock {self._name!r} belongs to user {owner}, not to {os.geteuid()}; remove it when no process "
                "uses it, or choose another path"
            )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder()
            os.close(self._fd)
            raise TransportError(
                f"the address 'ipc://{path}' is held by {holder}; stop that process, or choose another path"
            ) from error
        except OSError as error:
            os.close(self._fd)
            raise TransportError(
                f"the file system does not lock {self._name!r} ({error.strerror}); choose a path on a local file system"
            ) from error
        with contextlib.suppress(OSError):  # a full disk: the lock is held, but errors cannot name its holder
            os.ftruncate(self._fd, 0)
            os.write(self._fd, str(os.getpid()).encode())

    def release(self) -> None:
        """Release the lock. The file stays: after a removal, two processes could lock two files of the same name.
        Idempotent."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # also releases the copies that a fork made
        self.drop_copy()

    def drop_copy(self) -> None:
        """In a forked child: close the inherited copy, so that the lock ends with the parent. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _holder(self) -> str:
        content = os.pread(self._fd, 20, 0)
        return describe(int(content)) if content.isdigit() else "another process"
