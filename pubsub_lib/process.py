"""The id of this process, for objects that a forked child must not use, or must make again.

``os.getpid`` is a system call, which takes a microsecond or more where the processor's mitigations are on, and each
commit and each message would wait for several of them.
"""

import os
from typing import Final


class Process:
    """This process. Any thread may read it."""

    pid = os.getpid()
    """Its id, also in a forked child."""


def _after_in_child() -> None:
    this_process.pid = os.getpid()


this_process: Final = Process()
"""Global, because a process has one list of fork handlers, and no handler can be removed."""
os.register_at_fork(after_in_child=_after_in_child)
