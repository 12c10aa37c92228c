"""The standard streams of a command that were closed at its start, or whose reader disconnected.

Called only by the entry points of commands, in their main thread.
"""

import contextlib
import os
import sys


def replace_closed() -> None:
    """Open the standard streams that were closed when the process was started (``>&-``).

    Otherwise the next file or connection that is opened gets one of their numbers, and output is written into it.
    Reading from such an input and writing to such an output fail, as with the closed stream: a result that is not
    delivered is not a success. Output to such a stderr is discarded.
    """
    streams = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))
    for name, mode, access in streams:
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, access)  # the lowest free number is the stream's own
            stream = open(opened, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def discard_unwritable() -> None:
    """Redirect streams that cannot be flushed. Otherwise the interpreter reports an error when it flushes at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
