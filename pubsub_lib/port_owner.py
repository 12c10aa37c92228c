"""The process that holds a TCP port, from ``/proc`` (Linux; for other users' processes only as root), or a lock."""

import fcntl
import os
from pathlib import Path

_LISTENS = "0A"


def owner_of_port(port: int, proc: Path = Path("/proc")) -> str:
    """``"process 4711 (python service.py)"``, or "" when it is not found. Reads ``/proc``; does not block long."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(proc / "net" / table, port)}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    if not wanted:
        return ""
    for entry in sorted(proc.iterdir()):
        if entry.name.isdigit() and _holds(entry / "fd", wanted):
            return describe(int(entry.name), proc)
    return ""


def owner_of_lock(file: Path) -> str:
    """The process that holds the ``flock`` on this file, to which it wrote its id; "" for a free lock or missing file.

    Takes the lock for a short time, shared with other callers. Raises OSError, also for a symbolic link.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return holder_named_in(descriptor)
    finally:
        os.close(descriptor)
    return ""


def holder_named_in(descriptor: int) -> str:
    """The process whose id is the text of an open lock file. Raises OSError."""
    content = os.pread(descriptor, 20, 0).strip()
    return describe(int(content)) if content.isdigit() else "another process"


def describe(pid: int, proc: Path = Path("/proc")) -> str:
    """A process in words, with its command line if that can be read."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"process {pid}"
    line = " ".join(" ".join(words).split())
    return f"process {pid} ({line[:120]})" if line else f"process {pid}"


def _listening(table: Path, port: int) -> list[str]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]


def _holds(folder: Path, wanted: set[str]) -> bool:
    try:
        return any(_target(each) in wanted for each in folder.iterdir())
    except OSError:
        return False  # the process ended, or belongs to another user


def _target(link: Path) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - "socket:[123]" is not a path
    except OSError:
        return ""
