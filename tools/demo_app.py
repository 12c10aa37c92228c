"""``tools/demo``: real routes, a publisher-service with four workers, three controllers; one of each is killed.

Everything is in a temporary folder and gone afterwards. The table (or JSON) goes to stdout, progress to stderr.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from _routes import command
from _routes.plan import SERVICE, Kill, Plan, ReplicaPlan

from pubsub_lib import Timing

DATA = Path(__file__).resolve().parent / "data"
FEWEST_CHANGES = 300
"""With fewer there is no middle of the work in which a process could be killed."""
SECONDS = 20
"""Of the replay: as many updates come in a second as a busy day brings, and latencies are not those of queues."""
REPLICAS = (
    ReplicaPlan("replica-1", ("as3333",)),
    ReplicaPlan("replica-2", ("as5409", "as8259")),
    ReplicaPlan("replica-3", polling=True),
)
KILLS = (Kill("replica-2", 0.25), Kill(SERVICE, 0.5), Kill("worker-2", 0.75))
# Everything is on one host, so times may be short; the defaults are for networks.
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
        "Loads BGP routes into SQLite, replays updates over them by workers of a publisher-service, kills a worker, "
        "the service and a controller, and shows that every replica equals the database."
    )
    options = command.parser("tools/demo", about, FEWEST_CHANGES, SECONDS).parse_args(arguments)

    def work(run: Callable[[Plan], int], folder: Path) -> int:
        return run(
            Plan(
                database="SQLite",
                url=f"sqlite:///{folder / 'demo.sqlite'}",
                routes=DATA / "rib-small.jsonl.gz",
                changes=DATA / "updates-small.jsonl.gz",
                most_routes=options.routes,
                most_changes=options.changes,
                replicas=REPLICAS,
                kills=KILLS,
                replay_seconds=options.seconds,
                timing=TIMING,
            )
        )

    return command.execute("tools/demo", options.format, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
