"""The entry points of the three commands. Importing this module is quick: each command is imported when it is run.

An interrupt while a command's modules are being imported ends the process without a traceback.
"""

import sys
from importlib import import_module

from pubsub_lib.command.entry import report_error
from pubsub_lib.command.exit_codes import AUDIT_USAGE, INTERRUPTED


def pubsub_db() -> int:
    """Run ``pubsub-db`` with the arguments of this process; its exit code."""
    return _run("pubsub_lib.cli.main")


def publisher_service() -> int:
    """Run ``publisher-service`` with the arguments of this process; its exit code."""
    return _run("pubsub_lib.service.main")


def pubsub_audit() -> int:
    """Run ``pubsub-audit`` with the arguments of this process; its exit code. One sentence names a missing extra."""
    try:
        # ``show`` starts without the packages of the other commands.
        return _run("pubsub_lib.audit.show.main" if sys.argv[1:2] == ["show"] else "pubsub_lib.audit.main")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pubsub_lib":
            raise
        report_error("pubsub-audit", f"{error.name} is not installed; run: pip install pubsub-lib[audit]")
        return AUDIT_USAGE


def _run(module: str) -> int:
    try:
        return int(import_module(module).main())
    except KeyboardInterrupt:
        return INTERRUPTED
