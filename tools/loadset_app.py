"""``tools/loadset``: ``pubsub-db load`` of the full routing table, killed, run again, and compared with the file.

The runs after the kills begin at the first line again, as the command advises its users. In the last run all objects
already exist, so it must write nothing. Prints one JSON object; exit code 1: a check failed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from _command_line import Parser, positive
from _routes import command, comparison, data
from _termination import interrupt_on_signals
from realset_app import DATA, ROUTES, SERVERS, database

from pubsub_lib import Store
from pubsub_lib.errors import PubSubError

ROOT = Path(__file__).resolve().parent.parent
KILLS = (60_000, 200_000)
MAX_MEGABYTES = 150
"""The maximum memory that docs/cli.md states for any file."""
GLANCE = 0.005
"""Seconds between two polls of a load's progress."""


class Ended(msgspec.Struct, frozen=True):
    """One process of ``pubsub-db load``."""

    killed: bool
    """Killed by this tool; else it ended by itself."""
    changes: int
    """Number of changes of this run in the database."""
    position: int
    """The store's position after the run."""
    seconds: float
    megabytes: float
    """Peak resident memory, in 10^6 bytes."""


def pubsub_db(url: str, *arguments: str) -> "subprocess.Popen[str]":
    """The command, as a separate process."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "drivers"), os.environ.get("PYTHONPATH", "")))
    return subprocess.Popen(
        [sys.executable, "-m", "pubsub_lib.cli", "--database", url, "-q", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def load(store: Store, url: str, file: Path, kill_at: int | None) -> Ended:
    """Run ``load`` to its end, or kill it when the store is at ``kill_at``. Raises PubSubError when it ends otherwise.

    This process must be small then: the peak memory of a child starts with the size of its parent.
    """
    before, begun = position(store), time.monotonic()
    process = pubsub_db(url, "load", str(file))
    killed = False
    try:
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if kill_at is not None and not killed and position(store) >= kill_at:
                process.kill()
                killed = True
            time.sleep(GLANCE)
    except BaseException:
        process.kill()
        process.wait()
        raise
    seconds = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    with process.stderr:
        output = process.stderr.read().strip()
    if process.returncode != (0 if kill_at is None else -signal.SIGKILL):
        reached = f", at {position(store)} of {kill_at}" if kill_at is not None else ""
        raise PubSubError(f"pubsub-db load ended with {process.returncode}{reached}: {output or 'it wrote no error'}")
    after = position(store)
    return Ended(killed, after - before, after, round(seconds, 1), round(used.ru_maxrss * 1024 / 1e6, 1))


def position(store: Store) -> int:
    """The number of committed changes."""
    return store.read_heads([]).store.position


def wrong(store: Store, file: Path, ends: Sequence[Ended], max_megabytes: int) -> list[str]:
    """A sentence for each failed check."""
    found = []
    if ends[-1].changes:
        found.append(f"the last run made {ends[-1].changes} changes although all objects were loaded")
    peak = max(each.megabytes for each in ends)
    if peak > max_megabytes:
        found.append(f"the peak memory was {peak} MB, more than {max_megabytes} MB")
    expected: data.State = {}
    data.follow(expected, data.read(file))
    differences = comparison.of_files(comparison.snapshot(store.objects()), expected, {}, {})
    if differences.number:
        found.append(f"the database differs from the file: {differences}")
    for topic, head in store.topics().items():
        if store.recount(topic) != head:
            found.append(f"the head of {topic} is {head}, a recount gives {store.recount(topic)}")
    return found


def execute(url: str, file: Path, kills: Sequence[int], max_megabytes: int) -> dict[str, Any]:
    """Execute all runs, then the comparison. Raises PubSubError, OSError."""
    made = pubsub_db(url, "init")
    output = made.communicate()[1].strip()
    if made.returncode != 0:
        raise PubSubError(output)
    with Store(url, read_only=True) as store:
        if position(store) != 0:
            raise PubSubError("the database is not empty; name an empty one")
        ends = [load(store, url, file, each) for each in (*kills, None, None)]
        return {
            "objects": sum(head.count for head in store.topics().values()),
            "runs": [msgspec.to_builtins(each) for each in ends],
            "peak_megabytes": max(each.megabytes for each in ends),
            "wrong": wrong(store, file, ends, max_megabytes),
        }


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = Parser(prog="tools/loadset", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", default="sqlite", metavar="NAME|URL", help="as for tools/realset")
    parser.add_argument("--file", type=Path, default=DATA / ROUTES, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument(
        "--kills",
        type=positive,
        nargs="*",
        default=KILLS,
        metavar="N",
        help="SIGKILL when N lines are committed (60000 200000)",
    )
    parser.add_argument(
        "--max-megabytes",
        type=positive,
        default=MAX_MEGABYTES,
        metavar="N",
        help="maximum memory (default: %(default)s)",
    )
    options: argparse.Namespace = parser.parse_args(arguments)
    if not options.file.is_file():
        parser.error(f"there is no file {options.file}; name one by --file")
    if any(one >= other for one, other in pairwise(options.kills)):
        parser.error("--kills must increase; each run continues where the run before it was killed")
    if options.database not in ("sqlite", *SERVERS) and "://" not in options.database:
        parser.error(f"{options.database!r} is neither sqlite, postgresql, mariadb nor a URL")
    try:
        with tempfile.TemporaryDirectory(prefix="pubsub-") as folder, database(options.database, Path(folder)) as url:
            report = execute(url, options.file, options.kills, options.max_megabytes)
    except (PubSubError, OSError) as error:
        print(f"tools/loadset: {error}", file=sys.stderr)
        return command.NOT_RUN
    except KeyboardInterrupt:
        return command.INTERRUPTED
    print(json.dumps(report, indent=2))
    return command.BROKEN if report["wrong"] else command.KEPT


if __name__ == "__main__":
    interrupt_on_signals()
    sys.exit(main(sys.argv[1:]))
