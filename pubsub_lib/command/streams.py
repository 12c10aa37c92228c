"""The standard streams of a command: what its starter may have closed, and what a reader that went away leaves behind.

Called by the entry points of commands alone, in their main thread.
"""

import contextlib
import os
import sys


def replace_closed() -> None:
    """Give the process the standard streams that whoever started it had closed (``>&-``).

    Otherwise the next file or connection that is opened would take their numbers, and be written into. Reading such an
    input and writing such an output fail, as with the closed one: a result that nobody gets is no success. What goes to
    such a stderr is let go of.
    """
    streams = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))
    for name, mode, access in streams:
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, access)  # the lowest free number: its own
            stream = open(opened, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def discard_unwritable() -> None:
    """The interpreter flushes once more at its end, and would complain about a reader that went away or a full disk."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
