"""Processes of a test: their children, their ports, and the user they run as. Linux (reads ``/proc``)."""

import os
import pwd
import random
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.02
_SHARES = 16
"""Of the ports: more than anybody runs tests side by side."""
_returned: deque[int] = deque(maxlen=400)
"""The last ports that this process was given; its share has 1,062. Global: one process has one set of ports."""


def children(pid: int) -> list[int]:
    """All living descendants of a process, nearest first, without zombies. Any thread; does not block."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    ahead = [pid]
    while ahead:
        below = parents.get(ahead.pop(0), [])
        found += below
        ahead += below
    return found


def kill_tree(pid: int, timeout: float = 10.0) -> None:
    """SIGKILL a child of this process with all its descendants; return when the descendants are gone.

    The caller still has to reap ``pid`` itself. PostgreSQL's backends each lead a process group of their own,
    so that killing the group would miss them. Blocks up to ``timeout`` seconds, then raises TimeoutError.
    """
    try:
        os.kill(pid, signal.SIGSTOP)  # so that it starts no more children while we list them
    except ProcessLookupError:
        return
    below = children(pid)
    for each in (pid, *below):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if not poll(lambda: not any(alive(each) for each in below), timeout):
        raise TimeoutError(f"descendants of process {pid} outlived SIGKILL by {timeout:g} s; look at {below}")


def poll(probe: Callable[[], bool], timeout: float) -> bool:
    """Ask ``probe`` again and again until it says True; False when it did not within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not probe():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now.

    Taken from below the range of outgoing connections: there, a client that keeps trying to reach a server
    that was killed can end up connected to itself, and then the server cannot have its port back. Processes that
    run tests side by side take from shares of their own, so that none is handed out twice before it is bound.
    """
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """So many different ones, none of which one of the last calls returned: its caller may not have bound it yet.
    Raises OSError when there are too few.
    """
    choice = random.SystemRandom()
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    found: list[int] = []
    for _ in range(200 * number):
        port = choice.randrange(15_000 + share, 32_000, _SHARES)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found and port not in _returned:
            found.append(port)
        if len(found) == number:
            _returned.extend(found)
            return found
    raise OSError("no free TCP port between 15000 and 32000 on 127.0.0.1; end what holds them")


def unprivileged() -> pwd.struct_passwd | None:
    """The user that a server runs as when we are root, which database servers refuse; None: as ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def give_away(folder: Path) -> None:
    """Make ``unprivileged`` the owner of a folder and all in it; nothing to do when we are not root."""
    user = unprivileged()
    if user is not None:
        for each in (folder, *folder.rglob("*")):
            os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)


def alive(pid: int) -> bool:
    """Whether a process runs. One that ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
