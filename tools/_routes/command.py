"""A run as a command: a temporary folder, complete clean-up, and exit codes."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from _termination import interrupt_on_signals
from rich.console import Console

from _routes.plan import Plan
from _routes.progress import Progress
from _routes.report import as_json, show
from _routes.run import Run
from pubsub_lib.errors import PubSubError

KEPT, BROKEN, NOT_RUN, INTERRUPTED = 0, 1, 3, 130


def execute(prog: str, shown: str, work: Callable[[Callable[[Plan], int], Path], int]) -> int:
    """Call ``work`` with a function that runs a plan and prints its report, and with a temporary folder.

    Returns an exit code. An error is reported as one sentence on stderr.
    """

    def in_this(folder: Path) -> int:
        def run(plan: Plan) -> int:
            report = Run(plan, folder, Progress(Console(stderr=True))).execute()
            if shown == "json":
                print(as_json(report))
            else:
                show(report, Console())
            broken = report.broken()
            if broken:
                more = f" (and {len(broken) - 1} more errors)" if broken[1:] else ""
                print(f"{prog}: {broken[0]}{more}", file=sys.stderr)
            if report.audit is not None and report.audit.exit_code > NOT_RUN:
                return report.audit.exit_code
            return BROKEN if broken else KEPT

        return work(run, folder)

    return in_folder(prog, in_this)


def in_folder(prog: str, work: Callable[[Path], int]) -> int:
    """Call ``work`` with a temporary folder, which is removed afterwards, also when a signal ends the command.

    Returns its exit code, NOT_RUN or INTERRUPTED. An error is reported as one sentence on stderr.
    """
    interrupt_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix="pubsub-") as folder:
            return work(Path(folder))
    except KeyboardInterrupt:
        print(f"{prog}: interrupted; every process was stopped and every file removed", file=sys.stderr)
        return INTERRUPTED
    except (PubSubError, OSError) as error:
        print(f"{prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_RUN
