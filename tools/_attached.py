"""``python -m _attached MODULE ARGUMENT …``: run a module in this process, which is killed with its parent."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """From now on this process is killed with its parent (Linux): when the thread that started it ends. Ends it with
    status 1 when the parent has already ended.
    """
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # the parent ended before the setting took effect


def main() -> None:
    """Does not return. The setting survives exec."""
    die_with_parent()
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])


if __name__ == "__main__":
    main()
