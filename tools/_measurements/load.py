"""``pubsub-db load`` of the full routing table, killed, run again, and compared with the file: ``tools/bench load``.

The runs after the kills begin at the first line again, as the command advises its users. In the last run all objects
already exist, so it must write nothing. Exit code 1: a check failed.
"""

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import _databases
import msgspec
from _bench.measure import BenchError
from _children import Child, Children, attached
from _command_line import Parser, positive
from _databases import database
from _routes import comparison, data
from _routes.full import DATA, ROUTES

from _measurements.command import Finding, Findings, OptionsError
from pubsub_lib import Store

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


def pubsub_db(children: Children, url: str, log: Path, *arguments: object) -> Child:
    """The command, as a separate process."""
    return children.start(
        "pubsub-db", attached("pubsub_lib.cli", "--database", url, "-q", *arguments),
        log=log, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def load(store: Store, url: str, file: Path, kill_at: int | None, folder: Path) -> Ended:
    """Run ``load`` to its end, or kill it when the store is at ``kill_at``. Raises BenchError when it ends otherwise.

    This process must be small then: the peak memory of a child starts with the size of its parent.
    """
    before, begun = position(store), time.monotonic()
    with Children() as children:
        child = pubsub_db(children, url, folder / "load.log", "load", file)
        killed = False
        while True:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if kill_at is not None and not killed and position(store) >= kill_at:
                child.process.send_signal(signal.SIGKILL)
                killed = True
            time.sleep(GLANCE)
        seconds = time.monotonic() - begun
        ended = child.process.returncode = os.waitstatus_to_exitcode(status)
        if ended != (0 if kill_at is None else -signal.SIGKILL):
            reached = f", at {position(store)} of {kill_at}" if kill_at is not None else ""
            raise BenchError(f"pubsub-db load ended with {ended}{reached}: {child.last_words()}")
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


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--database", type=_databases.choice, default="sqlite", metavar=_databases.METAVAR, help=_databases.HELP
    )
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


def measure(options: argparse.Namespace) -> Findings:
    """All runs, then the comparison."""
    if any(one >= other for one, other in pairwise(options.kills)):
        raise OptionsError("--kills must increase, because each run continues where the run before it was killed")
    if not options.file.is_file():
        raise OptionsError(f"there is no file {options.file}; name one by --file")
    with tempfile.TemporaryDirectory(prefix="pubsub-") as made:
        folder = Path(made)
        with database(options.database, folder) as url, Children() as children:
            child = pubsub_db(children, url, folder / "init.log", "init")
            if child.process.wait() != 0:
                raise BenchError(child.last_words())
            with Store(url, read_only=True) as store:
                if position(store) != 0:
                    raise BenchError("the database is not empty; name an empty one")
                ends = []
                for number, kill_at in enumerate((*options.kills, None, None), 1):
                    ends.append(load(store, url, options.file, kill_at, folder))
                    yield of_run(number, ends[-1])
                yield from whole(store, ends)
                for sentence in wrong(store, options.file, ends, options.max_megabytes):
                    yield Finding("wrong", f"wrong: {sentence}", {"sentence": sentence}, met=False)


def of_run(number: int, ended: Ended) -> Finding:
    """One run of the command."""
    how = "killed" if ended.killed else "to the end"
    words = f"run {number}, {how}: {ended.changes:,} changes in {ended.seconds} s, {ended.megabytes} MB at most"
    return Finding(f"run {number}", words, msgspec.to_builtins(ended))


def whole(store: Store, ends: Sequence[Ended]) -> Findings:
    """The number of objects, and the peak memory of all runs."""
    objects = sum(head.count for head in store.topics().values())
    peak = max(each.megabytes for each in ends)
    words = f"{objects:,} objects; {peak} MB at most"
    yield Finding("database", words, {"objects": objects, "peak_megabytes": peak})
