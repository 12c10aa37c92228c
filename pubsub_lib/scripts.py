"""The entry points of the three commands. Importing this module is quick: each command is imported when it is run.

An interrupt while a command's modules are being imported ends the process without a traceback.
"""

from collections.abc import Callable

from pubsub_lib.command.exit_codes import INTERRUPTED


def pubsub_db() -> int:
    """Run ``pubsub-db`` with the arguments of this process; its exit code."""

    def imported() -> Callable[[], int]:
        from pubsub_lib.cli.main import main

        return main

    return _run(imported)


def publisher_service() -> int:
    """Run ``publisher-service`` with the arguments of this process; its exit code."""

    def imported() -> Callable[[], int]:
        from pubsub_lib.service.main import main

        return main

    return _run(imported)


def pubsub_audit() -> int:
    """Run ``pubsub-audit`` with the arguments of this process; its exit code."""

    def imported() -> Callable[[], int]:
        from pubsub_lib.audit.main import main

        return main

    return _run(imported)


def _run(imported: Callable[[], Callable[[], int]]) -> int:
    try:
        return imported()()
    except KeyboardInterrupt:
        return INTERRUPTED
