"""Common parts of the commands of this folder: a parser that reports errors in one sentence, and option types."""

import argparse
from collections.abc import Callable
from typing import NoReturn

WRONG_OPTION = 2


class Parser(argparse.ArgumentParser):
    """Reports an error in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        # A subcommand's prog ends with its name; the sentence names the help of the main command.
        self.exit(WRONG_OPTION, f"{self.prog}: {message}; see {self.prog.partition(' ')[0]} --help\n")


def at_least(least: int) -> Callable[[str], int]:
    """An option's type: an integer from ``least`` on."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return number


positive = at_least(1)
"""An option's type."""
