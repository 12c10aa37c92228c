"""The outermost frame of a command: no exception leaves it, and each error is one sentence on stderr."""

import contextlib
import sys
from collections.abc import Callable

from pubsub_lib.command import streams
from pubsub_lib.command.exit_codes import INTERNAL_ERROR, INTERRUPTED, TERMINATED
from pubsub_lib.command.signals import Terminated


def run(program: str, command: Callable[[], int], hint: str = "") -> int:
    """Run a command and return its exit code. Call it in the main thread.

    Standard streams that the caller closed are replaced first. An exception that the command does not handle is
    reported as an internal error with the exit code 70, an interrupt ends it without output with 130 or 143.
    ``hint``: what a user should do after an internal error.
    """
    streams.replace_closed()
    try:
        return command()
    except KeyboardInterrupt as by:
        return code_of_interrupt(by)
    except Exception as error:  # noqa: BLE001 - a user of the command line sees no traceback
        report_error(program, internal_error(error, hint))
        return INTERNAL_ERROR
    finally:
        streams.discard_unwritable()


def code_of_interrupt(by: KeyboardInterrupt) -> int:
    """The exit code of a command that a signal ended."""
    return TERMINATED if isinstance(by, Terminated) else INTERRUPTED


def internal_error(error: BaseException, hint: str = "") -> str:
    """The sentence that reports a fault of the program itself."""
    return f"internal error ({error!r}){hint and '; '}{hint}"


def report_error(program: str, sentence: object) -> None:
    """Print one line on stderr, behind the program's name. A stderr that is not writable is ignored."""
    with contextlib.suppress(OSError, ValueError):
        print(f"{program}: {' '.join(str(sentence).split())}", file=sys.stderr)  # noqa: T201 - a command's output
