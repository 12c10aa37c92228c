"""Confirmation before data is deleted or overwritten, and values from the command line."""

import argparse
import sys
from typing import Any, Final

from pubsub_lib.cli.formatting import visible
from pubsub_lib.command.exit_codes import Declined
from pubsub_lib.core import values
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.errors import InvalidValueError, UsageError

STANDARD: Final = "-"
"""Standard input or output instead of a value or a file."""


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, the option of a command that asks for confirmation."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def confirm(parsed_args: argparse.Namespace, action: str) -> None:
    """Ask on the terminal whether to do ``action``, unless ``--yes`` was given. Blocks until the user answers.

    Raises UsageError when stdin is not a terminal, Declined for any answer except "y" or "yes".
    """
    if parsed_args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"cannot ask whether to {action}: the input is not a terminal; give --yes to do it")
    print(f"{visible(action[0].upper() + action[1:])}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")


def check_names(parsed_args: argparse.Namespace) -> None:
    """Reject an invalid ``table`` or ``topic``. Otherwise the empty result of an invalid name would look valid.

    None means all tables or topics. Raises InvalidValueError.
    """
    for kind in ("table", "topic"):
        name = getattr(parsed_args, kind, None)
        if name is not None:
            check_name(kind, name)


def longest(limits: Limits) -> int:
    """The maximum number of JSON bytes that are read for one value, or for a line with one value."""
    # Escapes and spaces may make JSON longer than its canonical form, but rarely by this factor.
    return 8 * limits.max_value_bytes + 65536


def value(text: str, limits: Limits) -> Any:
    """The value of a command-line argument: JSON, or ``-`` for JSON on standard input. Raises UsageError."""
    data = _standard_input(longest(limits)) if text == STANDARD else text.encode(errors="surrogateescape")
    try:
        return values.decode(data)
    except InvalidValueError as error:
        where = "the standard input" if text == STANDARD else f"the value {text[:60]!r}"
        reason = str(error.__cause__ or error)
        raise UsageError(
            f"{where} is not valid JSON ({reason}); text needs double quotes, and single quotes around them in a shell"
        ) from error


def _standard_input(maximum: int) -> bytes:
    data = sys.stdin.buffer.read(maximum + 1)
    if len(data) > maximum:
        raise UsageError(f"the standard input holds more than {maximum} bytes; give one value, or use pubsub-db load")
    return data
