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

from _processes import alive

MEMORY: Final = Path("/dev/shm")
FILES: Final = 4 * 2**30
"""Bytes that must be free for the files: several times what the tests use."""
PROGRAMS: Final = 6 * 2**30
"""Bytes that must be free beside that, for the programs of the tests."""
GROUP: Final = Path("/sys/fs/cgroup")
"""The limits of a container."""


def has_room(folder: Path) -> bool:
    """Whether a folder can be written to, programs in it can be run, and it and the memory have enough free bytes."""
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= FILES and available_memory() >= FILES + PROGRAMS


def available_memory(table: Path = Path("/proc/meminfo"), group: Path = GROUP) -> int:
    """Bytes that programs can get without swapping, and within the limit of a container; 0 without such a table."""
    if not table.exists():
        return 0
    lines = table.read_text(encoding="ascii").splitlines()
    free = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    limit = group / "memory.max"
    if not limit.exists() or limit.read_text(encoding="ascii").strip() == "max":
        return free
    used = int((group / "memory.current").read_text(encoding="ascii"))
    return min(free, int(limit.read_text(encoding="ascii")) - used)


@contextmanager
def temporary_files() -> Iterator[dict[str, str]]:
    """The variable for programs whose temporary files shall be in memory, until the end of the ``with`` block; none if
    TMPDIR is set, or too little memory is free.
    """
    if "TMPDIR" in os.environ or not has_room(MEMORY):
        yield {}
        return
    remove_abandoned(MEMORY)
    # A short name: the path of a Unix domain socket has at most 107 bytes.
    folder = MEMORY / f"t{os.getpid()}"
    folder.mkdir()
    try:
        folder.chmod(0o755)  # private servers run as another user
        yield {"TMPDIR": str(folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a process that a test left behind may still write
        if folder.exists():
            print(f"{folder} is left in memory, because a process still writes to it; end it and remove the folder")


def remove_abandoned(memory: Path) -> None:
    """Remove this user's folders of processes that were killed, one that had the number of this process included."""
    for folder in memory.glob("t[0-9]*"):
        pid = folder.name[1:]
        if not pid.isdigit() or folder.stat().st_uid != os.geteuid():
            continue
        if int(pid) == os.getpid() or not alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def keep_failed(folder: Path) -> Path | None:
    """Copy what pytest has kept of failed tests to the disk; None when it has kept nothing."""
    kept = [each for each in folder.glob("pytest-of-*") if any(path.is_file() for path in each.rglob("*"))]
    if not kept:
        return None
    disk = Path(tempfile.mkdtemp(prefix="pubsub-failed-"))
    for each in kept:
        shutil.copytree(each, disk / each.name, symlinks=True, copy_function=_copy)
    return disk


def _copy(source: str, target: str) -> None:
    """Only files: a socket cannot be copied, and a pipe would be waited for."""
    if Path(source).is_file():
        shutil.copy2(source, target)
