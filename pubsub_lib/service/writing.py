"""Try whether this process can write in a folder or a file, by doing it. Nothing is left behind.

What the system says about permissions (``os.access``) is not what it does: root may do everything by its word, and yet
nobody can make a folder below ``/proc``, in a file system that is mounted read-only, or below a regular file.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import Final

_IN_USE: Final = (errno.ENOTEMPTY, errno.EEXIST)


def try_writing(folder: Path) -> None:
    """Make a file without a name in this folder and let it go. Blocks for the disk. Raises OSError."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _at(folder, error) from error


def try_opening(file: Path) -> bool:
    """Open this file to write in it, and close it unchanged; False when it is missing. Blocks for the disk.

    Raises OSError. Not for a SQLite file that this process has open: closing any copy gives up SQLite's locks on it.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return False
    return True


def try_making(folder: Path) -> None:
    """Make this folder, with those above it that are missing, write in it, and remove what was made. Blocks for the
    disk. Raises OSError, which names the folder that could not be made, written or removed.
    """
    made: list[Path] = []
    try:
        for each in reversed([folder, *folder.parents]):
            if each.is_dir():
                continue
            try:
                each.mkdir(mode=0o700)
            except FileExistsError as error:
                if not each.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(each)) from error
            else:
                made.append(each)
        try_writing(folder)
    finally:
        for each in reversed(made):
            _remove(each)


def reason_of(error: OSError) -> str:
    """What the system answered, and about which path, for brackets in a sentence."""
    reason = error.strerror or str(error)
    return f"{reason}: {str(error.filename)!r}" if error.filename else reason


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _IN_USE:  # otherwise somebody put something there meanwhile, who keeps it
            raise


def _at(folder: Path, error: OSError) -> OSError:
    """The same error, about the folder and not about the name of a temporary file."""
    return OSError(error.errno, error.strerror, str(folder))
