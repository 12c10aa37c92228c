"""Processes of a test: their children, their ports, and their user. Linux only (reads ``/proc``)."""

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
"""Number of shares of the ports; more than the usual number of parallel test processes."""
_returned: deque[int] = deque(maxlen=400)
"""The last ports that this process got, of the 1,062 of its share. Global, because a process has one set of ports."""


def children(pid: int) -> list[int]:
    """All living descendants of a process, nearest first, without zombies. Any thread; does not block."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has just ended
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
    """SIGKILL a child of this process and all its descendants. Returns when the descendants have ended.

    The caller still has to reap ``pid`` itself. Each of PostgreSQL's backends has a separate process group, so that
    killing the group would miss them. Blocks up to ``timeout`` seconds, then raises TimeoutError.
    """
    try:
        os.kill(pid, signal.SIGSTOP)  # so that it starts no children while they are listed
    except ProcessLookupError:
        return
    below = children(pid)
    for each in (pid, *below):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if not poll(lambda: not any(alive(each) for each in below), timeout):
        raise TimeoutError(f"descendants of process {pid} still run {timeout:g} s after SIGKILL; check {below}")


def pause(pid: int) -> bool:
    """Send SIGSTOP to a process, and wait until all its threads are stopped: until then each of them may run on.
    False: it has ended. Its exit status is left for the caller.
    """
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return wait_stopped(pid)


def wait_stopped(pid: int) -> bool:
    """Wait until all threads of a process are stopped, as by SIGSTOP. False: it has ended."""
    while states := _states_of_threads(pid):
        if states == {"T"}:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _states_of_threads(pid: int) -> set[str]:
    """Empty when the process has ended."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.add(thread.read_text().rpartition(") ")[2][0])
        except (FileNotFoundError, ProcessLookupError):
            pass  # the thread has ended
    return states - {"Z", "X"}


def poll(probe: Callable[[], bool], timeout: float) -> bool:
    """Call ``probe`` repeatedly until it returns True. Returns False when it did not within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not probe():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def free_port() -> int:
    """An unused TCP port of 127.0.0.1.

    It is below the range of outgoing connections: in that range, a client that tries to reach a killed server may
    connect to itself, and then the server cannot bind its port again. Parallel test processes take ports from
    separate shares, so that no port is returned twice before it is bound.
    """
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """``number`` different ports. None was returned by one of the last calls, whose caller may not have bound it yet.
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
    raise OSError("no free TCP port between 15000 and 32000 on 127.0.0.1; end the processes that use them")


def unprivileged() -> pwd.struct_passwd | None:
    """The user of a server when this process is root, because database servers refuse root; None: the same user."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def give_away(folder: Path) -> None:
    """Make ``unprivileged`` the owner of a folder and its contents; does nothing when this process is not root."""
    user = unprivileged()
    if user is not None:
        for each in (folder, *folder.rglob("*")):
            os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
