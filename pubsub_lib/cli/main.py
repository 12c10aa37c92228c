"""The entry point of ``pubsub-db``. It reports errors that occur before other modules can be imported."""

import io
import sys
from collections.abc import Sequence
from typing import Final

from pubsub_lib.command import entry
from pubsub_lib.command.exit_codes import USAGE
from pubsub_lib.command.signals import sigterm_raises

EXTRA: Final = "pubsub-lib[cli]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (:mod:`pubsub_lib.command.exit_codes`). Raises no ``Exception``.

    ``arguments``: without the program's name; by default the arguments of the process.
    """
    return entry.run("pubsub-db", lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        from pubsub_lib.cli.app import PubsubDb
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pubsub_lib":
            raise
        entry.report_error("pubsub-db", f"{error.name} is not installed; run: pip install {EXTRA}")
        return USAGE
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks is shown as an escape, instead of raising an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    with sigterm_raises():
        return PubsubDb().run(list(sys.argv[1:] if arguments is None else arguments))
