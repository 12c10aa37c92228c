"""Concurrent writer processes against one database, with followers, and a check of everything: ``tools/bench stress``.

::

    tools/bench stress --database postgresql --seconds 60        # also: sqlite, mariadb, all, or any URL
    tools/bench stress --database all --seconds 60 --seed 7

Twelve writers mix transactions, violated conditions, blocks that raise, and the user's own sessions that are rolled
back after the counter was taken. A follower in a separate process reads the changelog meanwhile. A naive follower reads
``id > last`` of a table that the same transactions fill, to show how many rows that loses. The check at the end:
positions have no gaps, all chains are unbroken, every acknowledged transaction is stored exactly once and no other is,
the follower missed no link, no version decreased, heads equal a recount, and the objects equal the replayed changelog.
Exit code 1: a check failed.
"""

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

import _databases
from _children import Children
from _command_line import Parser, positive
from sqlalchemy import func, select

from _measurements.command import Finding, Findings
from _measurements.stress_checks import check
from _measurements.stress_processes import follow, follow_naively, metadata, naive, users_engine, write
from pubsub_lib.store import Store

PATIENCE = 600.0
"""Maximum number of seconds for the start of a process, and for its end after the writing time."""
SHOWN = 20
"""Maximum number of failed checks that are shown."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--database", type=_any, default="all", metavar=f"all|{_databases.METAVAR}", help=f"all, {_databases.HELP}"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the writers write (default: 60)")
    parser.add_argument(
        "--least", type=positive, default=1, help="minimum number of transactions of each writer (default: 1)"
    )
    parser.add_argument("--writers", type=positive, default=12, help="number of writer processes (default: 12)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32), help="seed of the writers' random choices"
    )


def _any(text: str) -> str:
    return text if text == "all" else _databases.choice(text)


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each database."""
    for chosen in _databases.NAMES if options.database == "all" else (options.database,):
        with (
            tempfile.TemporaryDirectory(prefix="pubsub-stress-") as folder,
            _databases.database(chosen, Path(folder)) as url,
        ):
            figures, wrong = run(url, options.writers, options.seconds, options.least, options.seed)
        yield finding(_databases.shown(chosen), options, figures, wrong)


def run(url: str, writers: int, seconds: float, least: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Test one database. Returns the figures, and a sentence for each failed check. Raises ChildError."""
    prepare(url)
    with tempfile.TemporaryDirectory(prefix="pubsub-stress-") as folder, Children() as children:
        followers = [children.fork(each, url, folder) for each in (follow, follow_naively)]
        crowd = [children.fork(write, url, number, seed, seconds, least, folder) for number in range(writers)]
        for each in followers + crowd:
            each.receive(PATIENCE)
        for each in followers + crowd:
            each.send()
        for each in crowd:
            each.receive(seconds + PATIENCE)
        Path(folder, "stop").touch()
        _, seen = [each.receive(PATIENCE) for each in followers]
        with Store(url) as store:
            wrong, figures = check(store, Path(folder))
    rows = count_naive_rows(url)
    return {**figures, "naive_rows": rows, "naive_missed": rows - seen}, wrong


def prepare(url: str) -> None:
    """Create all tables. No connection stays open, because the processes are forked."""
    Store(url).close()
    engine = users_engine(url)
    metadata.create_all(engine)
    engine.dispose()


def count_naive_rows(url: str) -> int:
    """The number of rows that the naive follower should have read."""
    engine = users_engine(url)
    with engine.connect() as connection:
        rows: int = connection.execute(select(func.count()).select_from(naive)).scalar_one()
    engine.dispose()
    return rows


def finding(name: str, options: argparse.Namespace, figures: dict[str, Any], wrong: list[str]) -> Finding:
    """The result of one database."""
    given = {"seed": options.seed, "writers": options.writers, "seconds": options.seconds}
    lines = [f"{name}: {options.writers} writers, {options.seconds:g} s, seed {options.seed}"]
    lines += [f"  {figure.replace('_', ' '):<28}{value:>8,}" for figure, value in figures.items()]
    lines += [f"  wrong: {sentence}" for sentence in wrong[:SHOWN]]
    return Finding(name, "\n".join(lines), {**given, **figures, "wrong": wrong[:SHOWN]}, not wrong)
