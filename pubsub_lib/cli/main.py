"""The entry point of ``pubsub-db``: what must work before anything else could be imported."""

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Final, NoReturn

from pubsub_lib import standard_streams

EXTRA: Final = "pubsub-lib[cli]"


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a command in the same order as Ctrl-C does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (:mod:`pubsub_lib.cli.exit_codes`). Never lets an exception out.

    ``arguments``: without the program's name; by default those of the process.
    """
    standard_streams.stand_in_for_closed()
    try:
        return _run(arguments)
    except Exception as error:  # noqa: BLE001 - what breaks before or behind the program's own handler is a sentence, too
        with contextlib.suppress(OSError, ValueError):
            print(f"pubsub-db: broke by a fault of its own ({error!r})", file=sys.stderr)
        return 70


def _run(arguments: Sequence[str] | None) -> int:
    try:
        from pubsub_lib.cli.app import PubsubDb
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pubsub_lib":
            raise
        print(f"pubsub-db: {error.name} is not installed; run: pip install {EXTRA}", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal's encoding does not have is shown as an escape; it is no reason to show nothing.
        sys.stdout.reconfigure(errors="backslashreplace")
    with _sigterm():
        code = PubsubDb().run(list(sys.argv[1:] if arguments is None else arguments))
    standard_streams.let_go_of_closed()
    return code


@contextlib.contextmanager
def _sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated
