"""The run of ``tools/demo --full``: the full routing table, on SQLite, PostgreSQL, MariaDB or a URL.

With ZeroMQ the service is killed three times, and both controllers survive; with polling one controller is killed.
"""

import argparse
from pathlib import Path
from typing import Final

import _databases
from _command_line import Parser

from _routes.plan import SERVICE, Kill, Plan, ReplicaPlan
from pubsub_lib import Timing

DATA: Final = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"
ROUTES: Final = "rib-rrc00-20000111.jsonl.gz"
CHANGES: Final = "updates-rrc00-19991214.jsonl.gz"
FEWEST_CHANGES: Final = 1000
SECONDS: Final = 0
REPLICAS: Final = (ReplicaPlan("everything"), ReplicaPlan("one topic", ("as3333",)))
KILLS: Final = {
    "zmq": (Kill(SERVICE, 0.25), Kill("worker-2", 0.4), Kill(SERVICE, 0.5), Kill(SERVICE, 0.75)),
    "polling": (Kill("everything", 0.4), Kill("writer-2", 0.5)),
}
"""The kills of each transport."""


def add_options(parser: Parser) -> None:
    """The options that need ``--full``. Their defaults are None, so that a use without ``--full`` is an error."""
    group = parser.add_argument_group("with --full")
    group.add_argument("--full", action="store_true", help="the full routing table, without an audit")
    group.add_argument(
        "--transport",
        choices=tuple(KILLS),
        help="zmq: workers, a publisher-service, and its subscribers; polling: all controllers poll the database (zmq)",
    )
    group.add_argument(
        "--database", type=_databases.choice, metavar=_databases.METAVAR, help=f"{_databases.HELP} (sqlite)"
    )
    group.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"folder with {ROUTES} and {CHANGES} (default: ../shared/data beside the project)",
    )


def check(parser: Parser, options: argparse.Namespace) -> None:
    """Set the defaults, and end with an error when the options are wrong."""
    options.transport = options.transport or "zmq"
    options.database = options.database or "sqlite"
    options.data = options.data or DATA
    if options.changes is not None and options.changes < FEWEST_CHANGES:
        parser.error(
            f"argument --changes: '{options.changes}' is not a whole number from {FEWEST_CHANGES} on, as --full needs"
        )
    for name in (ROUTES, CHANGES):
        if not (options.data / name).is_file():
            parser.error(f"{options.data} does not hold {name}; name another folder by --data")


def plan(options: argparse.Namespace, url: str) -> Plan:
    """The plan of the run in an empty database."""
    return Plan(
        database=_databases.shown(options.database),
        url=url,
        routes=options.data / ROUTES,
        changes=options.data / CHANGES,
        max_routes=options.routes,
        max_changes=options.changes,
        replicas=REPLICAS,
        load_size=5000,
        write_size=20,
        service=options.transport == "zmq",
        kills=KILLS[options.transport],
        replay_seconds=SECONDS if options.seconds is None else options.seconds,
        timing=Timing(sync_timeout=300.0),
        patience=300.0,
    )
