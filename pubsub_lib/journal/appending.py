"""One append file of a journal: whole frames or nothing, locked as long as its writer lives."""

import fcntl
import os
from pathlib import Path
from typing import Final

OPEN_SUFFIX: Final = ".journal"


class AppendFile:
    """Append-only. Not thread-safe. Every ``append`` is one ``write``: what it returned from, a SIGKILL cannot lose.

    The file is locked (``flock``) until it is closed or the process ends, so that others can tell a finished file.
    """

    def __init__(self, path: Path, beginning: bytes) -> None:
        """Create it. Raises OSError; then no file stays behind."""
        self.path = path
        self.size = 0
        # Before it is locked it looks finished: who rolls the folder may claim it, and take it away.
        while not self._created():
            self.close()
        try:
            self.append(beginning)
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def _created(self) -> bool:
        """Create and lock it; False when it was taken away in between."""
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            return _stands(self._fd, self.path)
        except OSError:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def append(self, *parts: bytes | bytearray) -> None:
        """Write a whole frame, or take back what was written of it. Raises OSError; the file ends whole then, too,
        as long as it can be cut (what cannot is a torn tail, and readers stop there).
        """
        size = sum(map(len, parts))
        try:
            written = os.writev(self._fd, parts)
            if written < size:
                self._append_rest(b"".join(parts), written)
            self.size += size
        except BaseException:  # an interrupt, too: what follows half a frame is never read
            os.ftruncate(self._fd, self.size)
            raise

    def _append_rest(self, frame: bytes, written: int) -> None:
        with memoryview(frame) as whole:
            while written < len(frame):
                written += os.write(self._fd, whole[written:])

    def close(self) -> None:
        """Idempotent; releases the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def claim(path: Path) -> int | None:
    """Lock a file that nobody writes any more and return its descriptor, to be closed; None while it is being
    written or when it is gone. Does not block.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _stands(fd, path):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _stands(fd: int, path: Path) -> bool:
    """Whether this open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
