"""A folder in memory for the temporary files of all tests.

The tests create and remove hundreds of thousands of files: databases, their copies, journals. On a disk this took most
of the system's processor time, and a third of the whole time.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM: Final = 4 * 2**30
"""Bytes that must be free, several times of what the tests use."""


def has_room(folder: Path, room: int | None = None) -> bool:
    """Whether a folder can be written to, programs in it can be run, and it and the memory have as many free bytes."""
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return min(shutil.disk_usage(folder).free, available_memory()) >= (ROOM if room is None else room)


def available_memory(table: Path = Path("/proc/meminfo")) -> int:
    """Bytes that programs can get without swapping; 0 where there is no such table."""
    if not table.exists():
        return 0
    lines = table.read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


@contextmanager
def temporary_files() -> Iterator[dict[str, str]]:
    """The variable for programs whose temporary files shall be in memory, until the end of the ``with`` block; none if
    TMPDIR is set, or too little memory is free.
    """
    if "TMPDIR" in os.environ or not has_room(MEMORY):
        yield {}
        return
    # A short name: the path of a Unix domain socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="t-", dir=MEMORY) as folder:
        Path(folder).chmod(0o755)  # private servers run as another user
        yield {"TMPDIR": folder}
