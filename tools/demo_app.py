"""``tools/demo``: real routes, a publisher-service with four workers, two relays, four controllers; one of each is
killed. Then the audit of the run, by the journals of all processes.

::

    tools/demo                    # exit code 0: all changes arrived, and the audit finds no error
    tools/demo --driver nats      # over a NATS server, which is downloaded as a Debian package at the first time
    tools/demo --driver pgnotify  # on a private PostgreSQL server; replicas read the changelog after a NOTIFY
    tools/demo --sabotage         # exit code 4: one object was corrupted, and the audit names it
    tools/demo --full             # the full routing table, on SQLite, PostgreSQL, MariaDB or a URL; without an audit

All files are in a temporary folder, which is removed afterwards, except the results of the audit. The tables (or
JSON) go to stdout, progress to stderr.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import _databases
from _command_line import Parser, at_least
from _routes import command, full
from _routes.drivers import DRIVERS, ZMQ
from _routes.plan import SERVICE, Kill, Plan, ReplicaPlan

from pubsub_lib import Timing

PROG = "tools/demo"
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
RELAYS = ("relay-1", "relay-2")
BELOW_RELAYS = (
    ReplicaPlan("replica-1", ("as3333",), parents=RELAYS),
    *REPLICAS[1:],
    ReplicaPlan("replica-4", ("as5409",), parents=RELAYS[::-1]),
)
"""The replicas of a run with relays: each relay is the first parent of one replica."""
EXIT_CODES = (
    "exit codes: 0 all checks passed, and the audit finds no error; 1 a check failed, for example a replica differs; "
    "2 invalid option; 3 the run failed (database, disk, a process); 4 and more: exit code of the audit "
    "(docs/audit.md), for example 4: an object is wrong; 130 interrupted"
)
KILLS = (Kill("replica-2", 0.25), Kill(SERVICE, 0.5), Kill("worker-2", 0.75))
KILLS_WITH_RELAYS = (Kill("replica-2", 0.2), Kill(RELAYS[0], 0.4), Kill(SERVICE, 0.6), Kill("worker-2", 0.8))
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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    about = (
        "Loads BGP routes into a database (SQLite), replays updates with workers of a publisher-service, kills a "
        "worker, the service, a relay and a controller, checks that every replica equals the database, and audits the "
        "run. Two controllers without a database are below two relays. There are no relays with another --driver than "
        "zmq, because its publishers bind no address, and with --full."
    )
    parser = Parser(prog=PROG, description=about, epilog=EXIT_CODES)
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table", help="of the report on stdout")
    parser.add_argument(
        "--changes",
        type=at_least(FEWEST_CHANGES),
        metavar="N",
        help=f"replay only the first N updates (at least {FEWEST_CHANGES}, with --full {full.FEWEST_CHANGES})",
    )
    parser.add_argument(
        "--seconds",
        type=at_least(0),
        metavar="N",
        help="spread the updates over N seconds, 0: as fast as the writers can "
        f"(default: {SECONDS}, with --full {full.SECONDS})",
    )
    parser.add_argument(
        "--routes", type=at_least(1000), metavar="N", help="load only the first N routes (at least 1000)"
    )
    audited = parser.add_argument_group("without --full")
    audited.add_argument(
        "--sabotage",
        action="store_true",
        help=f"corrupt one object in the memory of {REPLICAS[0].name} before the end: the audit must name it",
    )
    audited.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="a new folder for the results of the audit (default: named by the time, in the temporary folder)",
    )
    audited.add_argument(
        "--driver",
        choices=tuple(DRIVERS),
        help="how the service sends; a broker, or PostgreSQL for pgnotify, is started for the run (zmq)",
    )
    full.add_options(parser)
    options = parser.parse_args(arguments)
    check(parser, options)
    return options


def check(parser: Parser, options: argparse.Namespace) -> None:
    """Set the database, and end with an error when options do not fit together."""
    database = DRIVERS[options.driver or ZMQ].database
    if database != DRIVERS[ZMQ].database and options.database and not options.full:
        if options.database != database:
            parser.error(
                f"--driver {options.driver} needs a private PostgreSQL server, which it starts; leave out --database"
            )
        options.database = None
    for name in ("sabotage", "out", "driver") if options.full else ("transport", "database", "data"):
        if getattr(options, name):
            parser.error(f"--{name} is an option {'without' if options.full else 'with'} --full")
    if options.full:
        full.check(parser, options)
    else:
        options.database = database


def plan(options: argparse.Namespace, url: str) -> Plan:
    """The plan of the run in an empty database."""
    relays = DRIVERS[options.driver or ZMQ].binds
    # With the process id, so that parallel runs use different folders.
    named = f"{time.strftime('pubsub-audit-%Y%m%d-%H%M%S')}-{os.getpid()}"
    return Plan(
        database=_databases.shown(options.database),
        url=url,
        routes=DATA / "rib-small.jsonl.gz",
        changes=DATA / "updates-small.jsonl.gz",
        max_routes=options.routes,
        max_changes=options.changes,
        replicas=BELOW_RELAYS if relays else REPLICAS,
        driver=options.driver or ZMQ,
        relays=RELAYS if relays else (),
        kills=KILLS_WITH_RELAYS if relays else KILLS,
        replay_seconds=SECONDS if options.seconds is None else options.seconds,
        timing=TIMING,
        results=options.out or Path(tempfile.gettempdir()) / named,
        sabotage=REPLICAS[0].name if options.sabotage else "",
    )


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    options = parse(arguments)

    def work(run: Callable[[Plan], int], folder: Path) -> int:
        with _databases.database(options.database, folder) as url:
            return run(full.plan(options, url) if options.full else plan(options, url))

    return command.execute(PROG, options.format, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
