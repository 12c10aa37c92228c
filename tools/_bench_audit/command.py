"""``tools/bench audit``: the audit of many messages, compared with a bare chain of its joins and counts.

::

    tools/bench audit                           # 1 million and 10 million messages, and a million with one hot topic
    tools/bench audit --size 1000000 --rounds 5
    tools/bench audit --size 100000 --hot -f json

It also measures only the join with one count, as the minimum of an audit. It reports medians and ratios.
The journals are written once and kept in a folder (--cache). Each measurement is a separate process, in turns, and
starts when Spark runs. The machine should be nearly idle meanwhile. See docs/contributing/audit-internals.md.
"""

import argparse
import tempfile
from pathlib import Path

import msgspec
from _children import Children, attached
from _command_line import Parser, positive
from _measurements.command import Finding, Findings, log
from rich.console import Console

from _bench_audit import chain, report
from _bench_audit.chain import AUDIT, BARE, JOIN, Measured
from _bench_audit.journals import journals, whole

SIZES = (1_000_000, 10_000_000)


def options(parser: Parser) -> None:
    """The options of the command."""
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


def in_turns(folder: Path, rounds: int, memory: str) -> dict[str, list[Measured]]:
    """All three measurements in turns, each in a separate process. Raises PubSubError."""
    found: dict[str, list[Measured]] = {JOIN: [], BARE: [], AUDIT: []}
    for number in range(rounds):
        for what in found:
            with Children() as children:
                command = attached(chain.__name__, what, folder, memory)
                output = children.output(f"the measurement of {what}", command)
            one = msgspec.json.decode(output, type=Measured)
            took = f"{one.seconds} s, {one.processor} s of processor"
            log(f"{folder.name}, round {number + 1} of {rounds}, {what}: {took}")
            found[what].append(one)
    return found


def measure(options: argparse.Namespace) -> Findings:
    """All measurements, as one finding."""
    sizes = sorted(options.size or SIZES)
    sets = [(size, False) for size in sizes]
    if options.hot or not options.size:
        sets.insert(1, (sizes[0], True))
    found = []
    for size, hot in sets:
        folder = journals(options.cache, size, hot=hot, log=log)
        measured = in_turns(folder, options.rounds, options.memory)
        found.append(report.figures(whole(size), hot, measured))
    made = report.report(found, options.memory, options.rounds)
    console = Console()
    with console.capture() as shown:
        report.show(made, console)
    yield Finding("audit", shown.get().rstrip("\n"), msgspec.to_builtins(made), not made.wrong())
