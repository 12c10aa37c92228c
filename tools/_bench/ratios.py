"""The cases of ``tools/bench`` without a command: each is measured in turns with its peer; medians and ratios."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _command_line import Parser, positive
from _measurements.command import MET, MISSED, NOT_RUN, PROG, listed
from rich.console import Console

from _bench import fullsync, report
from _bench.cases import cases
from _bench.measure import QUICK, Row, Sizes
from pubsub_lib.errors import PubSubError

EXIT_CODES = (
    "exit codes: 0 every ratio is met (with --quick: everything arrived); 1 a ratio is missed;\n"
    "2 invalid option; 3 the run failed, or something did not arrive; 130 interrupted"
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    names = list(cases(fullsync.DATA))
    parser = Parser(
        prog=PROG,
        usage=f"{PROG} [options]\n       {PROG} COMMAND [options]",
        description="Six small cases, each compared with its peer in the same run; medians and ratios.",
        epilog=f"{EXIT_CODES}\n\ncommands, each with --help:\n{listed()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", action="append", choices=names, help="run only this case; may be repeated")
    parser.add_argument("--rounds", type=positive, default=None, metavar="N", help="per case (default: 5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="tiny run: only checks that everything arrives")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table", help="format of the output")
    parser.add_argument(
        "--data",
        type=Path,
        default=fullsync.DATA,
        metavar="DIR",
        help=f"folder with {fullsync.ROUTES} (default: ../shared/data beside the project; else routes are generated)",
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> report.Report:
    """All rows. Raises PubSubError when a case cannot be completed."""
    rounds = options.rounds or (1 if options.quick else 5)
    console = Console(stderr=True)
    on = report.machine()
    rows: list[Row] = []
    for name, case in cases(options.data).items():
        if options.case and name not in options.case:
            continue

        def log(text: str, name: str = name) -> None:
            # No live display, because its thread would be forked.
            if console.is_terminal:
                console.print(f"\r{name}: {text}\x1b[K", end="", highlight=False)

        rows.extend(case(QUICK if options.quick else Sizes(), rounds, log))
    if console.is_terminal:
        console.print("\r\x1b[K", end="")
    return report.report(rows, rounds, options.quick, on)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    options = parse(arguments)
    try:
        made = measure(options)
        text = report.as_json(made)
        if options.json is not None:
            options.json.write_text(text + "\n", encoding="utf-8")
    except (PubSubError, OSError) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return NOT_RUN
    if options.format == "json":
        print(text)
    else:
        report.show(made, Console())
    return MET if made.met else MISSED
