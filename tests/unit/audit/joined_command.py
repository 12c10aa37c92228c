"""``tools/bench joined``: random runs of real trackers, journals and stores, judged by the oracle and by Spark.

Every second run is on SQLite, the others are on PostgreSQL; in two of four runs one replica breaks a rule once. Exit
code 0: no healthy replica was accused, every planted fault was named, Spark and the oracle agree; 1 otherwise.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _command_line import Parser, positive
from _measurements.command import Finding, Findings, log
from _servers import PrivatePostgres

from tests.spark_session import small_session
from tests.unit.audit.joined_parts import FAULTS
from tests.unit.audit.joined_runs import Tally, judged_alike, run
from tests.unit.audit.oracle import Oracle

if TYPE_CHECKING:
    from _servers import PrivateServer
    from pyspark.sql import SparkSession

DATABASES: Final = ("sqlite", "postgresql")
SHOWN: Final = 20
"""Maximum number of wrong results that are printed."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--runs", type=positive, default=200, metavar="N", help="number of runs (200)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="first seed; each run adds 1 (0)")
    parser.add_argument(
        "--databases",
        type=_databases,
        default=DATABASES,
        metavar="NAME,…",
        help="sqlite, postgresql (default: both in turn)",
    )
    parser.add_argument("--no-spark", action="store_true", help="judge by the oracle alone")
    parser.add_argument(
        "--together", type=positive, default=500, metavar="N", help="runs that Spark judges at once (500)"
    )


def measure(options: argparse.Namespace) -> Findings:
    """All runs, then the tally; progress goes to stderr."""
    tally, began = Tally(), time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="joined-")))
        server = stack.enter_context(PrivatePostgres()) if "postgresql" in options.databases else None
        spark = None if options.no_spark else stack.enter_context(_session())
        for first in range(0, options.runs, options.together):
            numbers = range(first, min(first + options.together, options.runs))
            _some(tally, folder, options.seed, numbers, options.databases, server, spark)
            log(f"{numbers.stop} runs after {time.monotonic() - began:.0f} s")
    yield from _tally(tally, options.seed, options.runs, judged=not options.no_spark)


def _databases(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in DATABASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such database: {', '.join(unknown)}; there are {', '.join(DATABASES)}")
    return names


@contextmanager
def _session() -> Iterator["SparkSession"]:
    made, new = small_session()
    try:
        yield made
    finally:
        if new:
            made.stop()


def _some(
    tally: Tally,
    folder: Path,
    seed: int,
    numbers: range,
    databases: Sequence[str],
    server: "PrivateServer | None",
    spark: "SparkSession | None",
) -> None:
    oracles: dict[str, Oracle] = {}
    for number in numbers:
        database = databases[number % len(databases)]
        # By fours, so that each database has healthy runs and faulty ones.
        fault = FAULTS[number // 4 % len(FAULTS)] if number % 4 >= 2 else ""
        journals = folder / f"run-{number}"
        with _empty(database, folder, number, server) as url:
            world, one = run(seed + number, journals, fault, url)
        about = f"seed {seed + number}, run {number} on {database}"
        tally.add(world, one, about, database)
        oracles[about] = one
        shutil.rmtree(journals)
    if spark is not None:
        path = folder / f"runs-{numbers.start}.parquet"
        tally.differing += judged_alike(spark, path, oracles)
        path.unlink()


@contextmanager
def _empty(database: str, folder: Path, number: int, server: "PrivateServer | None") -> Iterator[str]:
    """The URL of an empty database. It is removed at the end of the block."""
    if server is not None and database == "postgresql":
        url = server.create_database()
        yield url
        server.drop_database(url)
    else:
        yield f"sqlite:///{folder / f'{number}.sqlite'}"
        for path in folder.glob(f"{number}.sqlite*"):
            path.unlink()


def _tally(tally: Tally, seed: int, runs: int, *, judged: bool) -> Findings:
    shares = ", ".join(f"{number} on {name}" for name, number in sorted(tally.runs.items()))
    words = f"{runs} runs, seeds {seed} to {seed + runs - 1}: {shares}; batches of up to {tally.largest} messages"
    yield Finding("runs", words, {"seed": seed, "runs": tally.runs, "largest_batch": tally.largest})
    verdicts = ", ".join(f"{number} {name}" for name, number in sorted(tally.verdicts.items()))
    words = f"{tally.healthy} healthy runs, verdicts: {verdicts or 'none'}"
    yield Finding("healthy", words, {"runs": tally.healthy, "verdicts": tally.verdicts})
    for (fault, how), number in sorted(tally.named.items()):
        yield Finding(f"planted {fault}", f"planted {fault}: {number} named by: {how}", {"number": number, "by": how})
    planted = sum(tally.runs.values()) - tally.healthy
    yield _wrong("accusations", "accusations of healthy replicas: {}", tally.accusations)
    yield _wrong("unnamed", f"planted faults that were not named: {{}} of {planted}", tally.unnamed)
    if judged:
        yield _wrong("differing", "tables in which Spark and the oracle differ: {}", tally.differing)
    else:
        yield Finding("differing", "not judged by Spark")
    for each in tally.wrong[:SHOWN]:
        yield Finding("wrong", f"wrong: {each}", {"sentence": each}, met=False)


def _wrong(name: str, text: str, found: Sequence[str]) -> Finding:
    return Finding(name, text.format(len(found)), {"number": len(found)}, not found)
