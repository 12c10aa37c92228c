"""The id of this process, for objects that a forked child must not use, or must make again.

``os.getpid`` is a system call, which takes a microsecond or more where the processor's mitigations are on, and each
commit and each message would wait for several of them.
"""

import os


def pid() -> int:
    """The id of this process, also in a forked child. Any thread; does not block."""
    return _pid


def _after_in_child() -> None:
    global _pid
    _pid = os.getpid()


_pid = os.getpid()
os.register_at_fork(after_in_child=_after_in_child)
