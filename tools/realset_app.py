"""``tools/realset``: the demo's run with the full routing table, on SQLite, PostgreSQL, MariaDB or a URL.

With ZeroMQ the service is killed three times, and both controllers survive; with polling one controller is killed.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from _routes import command
from _routes.plan import SERVICE, Kill, Plan, ReplicaPlan
from _servers import PrivateMariaDB, PrivatePostgres

from pubsub_lib import Timing

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
ROUTES = "rib-rrc00-20000111.jsonl.gz"
CHANGES = "updates-rrc00-19991214.jsonl.gz"
FEWEST_CHANGES = 1000
SERVERS = {"postgresql": PrivatePostgres, "mariadb": PrivateMariaDB}
REPLICAS = (ReplicaPlan("everything"), ReplicaPlan("one topic", ("as3333",)))
KILLS = {
    "zmq": (Kill(SERVICE, 0.25), Kill("worker-2", 0.4), Kill(SERVICE, 0.5), Kill(SERVICE, 0.75)),
    "polling": (Kill("everything", 0.4), Kill("writer-2", 0.5)),
}
"""The kills of each transport."""


@contextmanager
def database(choice: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database of this kind, on a private server if necessary."""
    if choice == "sqlite":
        yield f"sqlite:///{folder / 'realset.sqlite'}"
    elif choice in SERVERS:
        with SERVERS[choice]() as server:
            yield server.create_database()
    else:
        yield choice


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    about = "Loads the full routing table, replays all updates, and checks that replicas equal the database."
    parser = command.parser("tools/realset", about, FEWEST_CHANGES, 0)
    parser.add_argument(
        "--transport",
        choices=tuple(KILLS),
        default="zmq",
        help="zmq: workers, a publisher-service, and its subscribers; polling: all controllers poll the database",
    )
    parser.add_argument(
        "--database",
        default="sqlite",
        metavar="NAME|URL",
        help="sqlite, postgresql or mariadb (private, in a temporary folder), or the URL of an empty database",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=DATA,
        metavar="DIR",
        help=f"folder with {ROUTES} and {CHANGES} (default: ../shared/data beside the project)",
    )
    options = parser.parse_args(arguments)
    for name in (ROUTES, CHANGES):
        if not (options.data / name).is_file():
            parser.error(f"{options.data} does not hold {name}; name another folder by --data")
    if options.database not in ("sqlite", *SERVERS) and "://" not in options.database:
        parser.error(f"{options.database!r} is neither sqlite, postgresql, mariadb nor a URL")

    def work(run: Callable[[Plan], int], folder: Path) -> int:
        with database(options.database, folder) as url:
            return run(
                Plan(
                    database=options.database if options.database in ("sqlite", *SERVERS) else "by URL",
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
                    replay_seconds=options.seconds,
                    timing=Timing(sync_timeout=300.0),
                    patience=300.0,
                )
            )

    return command.execute("tools/realset", options.format, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
