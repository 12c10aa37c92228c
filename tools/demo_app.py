"""``tools/demo``: real routes, a publisher-service with four workers, three controllers; one of each is killed. Then
the audit of the run, by the journals of all processes.

::

    tools/demo                # exit code 0: all changes arrived, and the audit finds no error
    tools/demo --sabotage     # exit code 4: one object was corrupted, and the audit names it

All files are in a temporary folder, which is removed afterwards, except the results of the audit. The tables (or
JSON) go to stdout, progress to stderr.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _routes import command
from _routes.plan import SERVICE, Kill, Plan, ReplicaPlan

from pubsub_lib import Timing

DATA = Path(__file__).resolve().parent / "data"
FEWEST_CHANGES = 300
"""With fewer changes the run is too short to kill a process in the middle."""
SECONDS = 20
"""Duration of the replay: the rate of updates is that of a busy day, and queues do not increase latencies."""
REPLICAS = (
    ReplicaPlan("replica-1", ("as3333",)),
    ReplicaPlan("replica-2", ("as5409", "as8259")),
    ReplicaPlan("replica-3", polling=True),
)
EXIT_CODES = (
    "exit codes: 0 all checks passed, and the audit finds no error; 1 a check failed, for example a replica differs; "
    "2 invalid option; 3 the run failed (database, disk, a process); 4 and more: exit code of the audit "
    "(docs/audit.md), for example 4: an object is wrong; 130 interrupted"
)
KILLS = (Kill("replica-2", 0.25), Kill(SERVICE, 0.5), Kill("worker-2", 0.75))
# All processes are on one host, so times may be short; the defaults are for networks.
TIMING = Timing(
    max_idle_time=1.0,
    message_delay_window=0.3,
    hello_wait=0.3,
    reading_age=0.5,
    round_trip=0.5,
    poll_interval=0.5,
    sync_jitter=0.05,
    sync_interval=0.2,
)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    about = (
        "Loads BGP routes into SQLite, replays updates with workers of a publisher-service, kills a worker, the "
        "service and a controller, checks that every replica equals the database, and audits the run."
    )
    parser = command.parser("tools/demo", about, FEWEST_CHANGES, SECONDS, EXIT_CODES)
    parser.add_argument(
        "--sabotage",
        action="store_true",
        help=f"corrupt one object in the memory of {REPLICAS[0].name} before the end: the audit must name it",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="a new folder for the results of the audit (default: named by the time, in the temporary folder)",
    )
    options = parser.parse_args(arguments)
    named = (
        f"{time.strftime('pubsub-audit-%Y%m%d-%H%M%S')}-{os.getpid()}"  # so that parallel runs use different folders
    )
    results = options.out or Path(tempfile.gettempdir()) / named

    def work(run: Callable[[Plan], int], folder: Path) -> int:
        return run(
            Plan(
                database="SQLite",
                url=f"sqlite:///{folder / 'demo.sqlite'}",
                routes=DATA / "rib-small.jsonl.gz",
                changes=DATA / "updates-small.jsonl.gz",
                max_routes=options.routes,
                max_changes=options.changes,
                replicas=REPLICAS,
                kills=KILLS,
                replay_seconds=options.seconds,
                timing=TIMING,
                results=results,
                sabotage=REPLICAS[0].name if options.sabotage else "",
            )
        )

    return command.execute("tools/demo", options.format, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
