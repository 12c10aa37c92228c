"""Tests by writing whether this process can write in a folder or a file. Leaves no file behind.

``os.access`` does not predict the result of a write: it grants root everything, but root cannot create a folder below
``/proc``, in a file system that is mounted read-only, or below a regular file.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import Final

_IN_USE: Final = (errno.ENOTEMPTY, errno.EEXIST)


def try_writing(folder: Path) -> None:
    """Create a file without a name in this folder and remove it. Blocks for the disk. Raises OSError."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _at(folder, error) from error


def try_opening(file: Path) -> bool:
    """Open this file to write in it, and close it unchanged; False when it is missing. Blocks for the disk.

    Raises OSError. Not for a SQLite file that this process has open: closing any descriptor drops SQLite's locks on it.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return False
    return True


def try_making(folder: Path) -> None:
    """Create this folder with its missing parents, write in it, and remove the created folders. Blocks for the disk.
    Raises OSError, which names the folder that could not be created, written or removed.
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
    """The system's error text and its path, for brackets in a sentence."""
    reason = error.strerror or str(error)
    return f"{reason}: {str(error.filename)!r}" if error.filename else reason


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _IN_USE:  # otherwise another process put a file there meanwhile: the folder stays
            raise


def _at(folder: Path, error: OSError) -> OSError:
    """The same error with the folder's name in place of the temporary file's name."""
    return OSError(error.errno, error.strerror, str(folder))
