"""Runs a command of ``pubsub-audit``: signals end it in order, and each error becomes a sentence and an exit code."""

import io
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pubsub_lib.audit.arguments import PROGRAM
from pubsub_lib.audit.report.summary import INCOMPLETE
from pubsub_lib.command import entry, signals
from pubsub_lib.command.exit_codes import AUDIT_USAGE, INTERNAL_ERROR
from pubsub_lib.errors import ConfigError, PubSubError


def guarded(command: Callable[[], int], *, debug: bool) -> int:
    """The exit code of the command. Call it in the main thread. ``debug``: show the traceback of an internal error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files and keys are whatever they are
    with signals.interrupted_in_order():
        return _reported(command, debug)


def _reported(command: Callable[[], int], debug: bool) -> int:
    try:
        return command()
    except KeyboardInterrupt as stopped:
        return _interrupted(stopped)
    except ConfigError as error:
        entry.report_error(PROGRAM, error)
        return AUDIT_USAGE
    except PubSubError as error:
        entry.report_error(PROGRAM, error)
        return INCOMPLETE
    except Exception as error:  # noqa: BLE001 - a user gets one sentence; --debug shows the traceback
        signalled = signals.interruption(error)
        if signalled is not None:
            return _interrupted(signalled)
        if debug:
            traceback.print_exc()
        entry.report_error(PROGRAM, entry.internal_error(error, "run it with --debug and report what it shows"))
        return INTERNAL_ERROR


def _interrupted(by: KeyboardInterrupt) -> int:
    entry.report_error(PROGRAM, "interrupted; run it again")
    return entry.code_of_interrupt(by)


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Raise ConfigError for an OSError of the block, which begins to use the folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be used ({error.strerror or error}); check its permissions and its disk"
        ) from error
