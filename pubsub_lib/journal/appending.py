"""One append file of a journal: only whole frames, locked as long as its writer lives."""

import fcntl
import os
from pathlib import Path
from typing import Final

OPEN_SUFFIX: Final = ".journal"


class AppendFile:
    """Append-only. Not thread-safe. Every ``append`` is one ``write``: after it returned, a SIGKILL loses no frame.

    The file is locked (``flock``) until it is closed or the process ends, so that others can detect a finished file.
    """

    def __init__(self, path: Path, beginning: bytes) -> None:
        """Create the file. Raises OSError; then no file is left."""
        self.path = path
        self.size = 0
        # Before it is locked the file looks finished: a compaction of the folder may claim and remove it.
        while not self._created():
            self.close()
        try:
            self.append(beginning)
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def _created(self) -> bool:
        """Create and lock the file; False when it was removed in between."""
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            return _is_current(self._fd, self.path)
        except OSError:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def append(self, *parts: bytes | bytearray) -> None:
        """Write a whole frame, or remove the written part of it. Raises OSError; then the file ends with a whole frame,
        too, if it can be truncated (otherwise it has a torn tail, where readers stop).
        """
        size = sum(map(len, parts))
        try:
            written = os.writev(self._fd, parts)
            if written < size:
                self._append_rest(b"".join(parts), written)
            self.size += size
        except BaseException:  # an interrupt, too: frames after half a frame are never read
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
    """Lock a finished file and return its descriptor, which the caller closes; None while a process still writes it, or
    when it does not exist. Does not block.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(fd, path):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def being_written(path: Path) -> bool:
    """Whether a process holds the lock of the file. On a file system without locks no writer is known. Does not block.
    Raises OSError when the file cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _is_current(fd: int, path: Path) -> bool:
    """Whether this open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
