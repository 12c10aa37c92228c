"""``tools/bench_audit``: the audit of many messages, compared with a bare chain of its joins and counts.

::

    tools/bench_audit                           # 1 million and 10 million messages, and a million with one hot topic
    tools/bench_audit --size 1000000 --rounds 5
    tools/bench_audit --size 100000 --hot -f json

It also measures only the join with one count, as the minimum of an audit. It reports medians and ratios.
The journals are written once and kept in a folder (--cache). Each measurement is a separate process, in turns, and
starts when Spark runs. The machine should be nearly idle meanwhile. See docs/contributing/audit-internals.md.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from _bench_audit import report
from _bench_audit.chain import AUDIT, BARE, JOIN, Measured, measure
from _bench_audit.journals import journals, whole
from _command_line import Parser, positive
from rich.console import Console

from pubsub_lib.errors import PubSubError

MET, MISSED, NOT_RUN, INTERRUPTED = 0, 1, 3, 130
EXIT_CODES = (
    "exit codes: 0 every ratio is met; 1 a ratio is missed, many messages take too long, or a verdict is wrong; "
    "2 invalid option; 3 the run failed (disk, a process); 130 interrupted"
)
SIZES = (1_000_000, 10_000_000)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = Parser(
        prog="tools/bench_audit",
        description="Measures the audit of many messages, and a bare chain of its joins and counts.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--size", type=positive, action="append", metavar="N",
        help="number of messages, each published and applied once; may be repeated (default: 1 and 10 million)",
    )  # fmt: skip
    parser.add_argument(
        "--hot", action="store_true", help="also the smallest size with 90 %% of the messages in one topic"
    )
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="per size (default: %(default)s)")
    parser.add_argument("--memory", default="2g", help="the JVM's heap (default: %(default)s)")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "pubsub-bench-audit", metavar="FOLDER",
        help="folder in which journals are written and kept (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table", help="(default: %(default)s)")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def log(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def in_turns(folder: Path, rounds: int, memory: str) -> dict[str, list[Measured]]:
    """All three measurements in turns, each in a separate process. Raises PubSubError."""
    found: dict[str, list[Measured]] = {JOIN: [], BARE: [], AUDIT: []}
    for number in range(rounds):
        for what in found:
            command = [sys.executable, __file__, "--memory", memory, "--one", what, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["it wrote no error"]
                raise PubSubError(f"the measurement of {what} ended with {done.returncode}: {lines[-1]}")
            one = msgspec.json.decode(done.stdout, type=Measured)
            took = f"{one.seconds} s, {one.processor} s of processor"
            log(f"{folder.name}, round {number + 1} of {rounds}, {what}: {took}")
            found[what].append(one)
    return found


def run(options: argparse.Namespace) -> report.Report:
    """All measurements. Raises PubSubError, OSError."""
    sizes = sorted(options.size or SIZES)
    sets = [(size, False) for size in sizes]
    if options.hot or not options.size:
        sets.insert(1, (sizes[0], True))
    found = []
    for size, hot in sets:
        folder = journals(options.cache, size, hot=hot, log=log)
        measured = in_turns(folder, options.rounds, options.memory)
        found.append(report.figures(whole(size), hot, measured))
    return report.report(found, options.memory, options.rounds)


def main(arguments: Sequence[str]) -> int:
    """The exit code (``EXIT_CODES``)."""
    options = parse(arguments)
    try:
        if options.one:
            what, folder = options.one
            print(msgspec.json.encode(measure(what, Path(folder), options.memory)).decode())
            return MET
        made = run(options)
    except (PubSubError, OSError) as error:
        print(f"tools/bench_audit: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_RUN
    if options.format == "json":
        print(report.as_json(made))
    else:
        report.show(made, Console())
    return MISSED if made.wrong() else MET


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
