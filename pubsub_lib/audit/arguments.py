"""The parser of the command line, and the options that every command of ``pubsub-audit`` has."""

import argparse
import sys
from typing import Final, NoReturn

from pubsub_lib.command.exit_codes import AUDIT_USAGE

PROGRAM: Final = "pubsub-audit"


class Parser(argparse.ArgumentParser):
    """A parser whose errors end the process with 64: lower exit codes are verdicts."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit."""
        self.print_usage(sys.stderr)
        self.exit(AUDIT_USAGE, f"{self.prog}: {message}\n")


def add_output_options(command: argparse.ArgumentParser) -> None:
    """Add ``--format`` and ``--debug``."""
    command.add_argument("-f", "--format", choices=("table", "json"), default="table", help="(%(default)s)")
    command.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
