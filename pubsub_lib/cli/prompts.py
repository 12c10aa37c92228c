"""Questions before something is destroyed, and values from the command line."""

import argparse
import sys
from typing import Any, Final

from pubsub_lib.cli.formatting import visible
from pubsub_lib.command.exit_codes import Declined
from pubsub_lib.core import values
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.errors import InvalidValueError, UsageError

STANDARD: Final = "-"
"""Standard input, or output, in place of a value or a file."""


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The option of a command that asks."""
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def confirm(parsed_args: argparse.Namespace, question: str) -> None:
    """Ask on the terminal, unless ``--yes`` was given. Blocks for the answer.

    Raises UsageError where nobody can be asked, Declined for any answer but "y" or "yes".
    """
    if parsed_args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"cannot ask whether to {question}, because the input is no terminal; give --yes to do it")
    print(f"{visible(question[0].upper() + question[1:])}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")


def check_names(parsed_args: argparse.Namespace) -> None:
    """Refuse a ``table`` or ``topic`` that no object can have; nothing found would not tell it from a right one.

    None stands for all of them. Raises InvalidValueError.
    """
    for kind in ("table", "topic"):
        name = getattr(parsed_args, kind, None)
        if name is not None:
            check_name(kind, name)


def longest(limits: Limits) -> int:
    """The most bytes of JSON that are read for one value, or for a line that holds one."""
    # Escapes and spaces may make JSON longer than its canonical form, though hardly so much.
    return 8 * limits.max_value_bytes + 65536


def value(text: str, limits: Limits) -> Any:
    """A value as it is given on the command line: JSON, or ``-`` for JSON on standard input. Raises UsageError."""
    data = _standard_input(longest(limits)) if text == STANDARD else text.encode(errors="surrogateescape")
    try:
        return values.decode(data)
    except InvalidValueError as error:
        where = "the standard input" if text == STANDARD else f"the value {text[:60]!r}"
        reason = str(error.__cause__ or error)
        raise UsageError(
            f"{where} is no JSON ({reason}); text needs double quotes, and the shell single ones around them"
        ) from error


def _standard_input(maximum: int) -> bytes:
    data = sys.stdin.buffer.read(maximum + 1)
    if len(data) > maximum:
        raise UsageError(f"the standard input holds more than {maximum} bytes; give one value, or use pubsub-db load")
    return data
