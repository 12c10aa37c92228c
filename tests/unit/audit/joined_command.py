"""``tools/joined``: random runs of real trackers, journals and stores, judged by the oracle and by Spark.

Every second run is on SQLite, the others are on PostgreSQL; in two of four runs one replica breaks a rule once. Exit
status: 0 no healthy replica was accused, every planted fault was named, Spark and the oracle agree; 1 otherwise; 2
wrong arguments.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from _servers import PrivatePostgres

from pubsub_lib.errors import PubSubError
from tests.unit.audit.joined_parts import FAULTS
from tests.unit.audit.joined_runs import Tally, judged_alike, run
from tests.unit.audit.oracle import Oracle

if TYPE_CHECKING:
    from _servers import PrivateServer
    from pyspark.sql import SparkSession

DATABASES: Final = ("sqlite", "postgresql")
SHOWN: Final = 20
"""Maximum number of wrong results that are printed."""


def main(arguments: Sequence[str]) -> int:
    """The exit status of the command. Blocks until the end. Prints the tally to stdout, progress to stderr."""
    options = _options(arguments)
    tally, began = Tally(), time.monotonic()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="joined-")))
            server = stack.enter_context(PrivatePostgres()) if "postgresql" in options.databases else None
            spark = None if options.no_spark else stack.enter_context(_session())
            for first in range(0, options.runs, options.together):
                numbers = range(first, min(first + options.together, options.runs))
                _some(tally, folder, options.seed, numbers, options.databases, server, spark)
                print(f"{numbers.stop} runs after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    except (PubSubError, OSError) as error:
        print(f"tools/joined: {error}", file=sys.stderr)
        return 1
    _show(tally, options.seed, options.runs, judged=not options.no_spark)
    return 1 if tally.wrong else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/joined", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="number of runs (200)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="first seed; each run adds 1 (0)")
    parser.add_argument(
        "--databases",
        type=_databases,
        default=DATABASES,
        metavar="NAME,…",
        help="sqlite, postgresql (default: both in turn)",
    )
    parser.add_argument("--no-spark", action="store_true", help="judge by the oracle alone")
    parser.add_argument("--together", type=int, default=500, metavar="N", help="runs that Spark judges at once (500)")
    options = parser.parse_args(arguments)
    for name in ("runs", "together"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be 1 or more, not {getattr(options, name)}")
    return options


def _databases(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in DATABASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such database: {', '.join(unknown)}; there are {', '.join(DATABASES)}")
    return names


@contextmanager
def _session() -> Iterator["SparkSession"]:
    from pubsub_lib.audit.spark.session import QUICK_JVM, session

    options = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.extraJavaOptions": QUICK_JVM,
    }
    made, _ = session("local[2]", options=options)
    try:
        yield made
    finally:
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


def _show(tally: Tally, seed: int, runs: int, *, judged: bool) -> None:
    shares = ", ".join(f"{number} on {name}" for name, number in sorted(tally.runs.items()))
    print(f"{runs} runs, seeds {seed} to {seed + runs - 1}: {shares}; batches of up to {tally.largest} messages")
    verdicts = ", ".join(f"{number} {name}" for name, number in sorted(tally.verdicts.items()))
    print(f"{tally.healthy} healthy runs, verdicts: {verdicts or 'none'}")
    for (fault, how), number in sorted(tally.named.items()):
        print(f"planted {fault}: {number} named by: {how}")
    print(f"accusations of healthy replicas: {len(tally.accusations)}")
    print(f"planted faults that were not named: {len(tally.unnamed)} of {sum(tally.runs.values()) - tally.healthy}")
    print(f"tables in which Spark and the oracle differ: {len(tally.differing)}" if judged else "not judged by Spark")
    for each in tally.wrong[:SHOWN]:
        print(f"wrong: {each}")


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM):  # a shell starts commands in the background with SIGINT ignored
        signal.signal(each, _interrupt)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("tools/joined: interrupted", file=sys.stderr)
        sys.exit(130)
