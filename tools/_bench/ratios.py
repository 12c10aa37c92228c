"""The cases of ``tools/bench`` without a command: each is measured in turns with its peer; medians and ratios."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from _command_line import Parser, positive
from _measurements.command import MET, MISSED, NOT_RUN, PROG, listed
from rich.console import Console

from _bench import fullsync, report
from _bench.cases import REQUIRED, cases
from _bench.e2e import figures, peers
from _bench.measure import QUICK, Row, Sizes
from pubsub_lib.errors import PubSubError

E2E: Final = "e2e"
DRIVERS: Final = "drivers"
"""These cases run only when they are named: they download."""
EXIT_CODES: Final = (
    "exit codes: 0 every ratio is met (with --quick: everything arrived); 1 a ratio is missed;\n"
    "2 invalid option; 3 the run failed, something did not arrive, or a required ratio was not measured;\n"
    "130 interrupted"
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    names = [*cases(fullsync.DATA), DRIVERS, E2E]
    parser = Parser(
        prog=PROG,
        usage=f"{PROG} [options]\n       {PROG} COMMAND [options]",
        description="Small cases, each compared with its peer in the same run; medians and ratios. The cases "
        "drivers (drivers over a broker) and e2e (from a transaction to a handler in another process) run only when "
        "they are named: they download servers and peers, once, into the user's cache folder.",
        epilog=f"{EXIT_CODES}\n\ncommands, each with --help:\n{listed()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", action="append", choices=names, help="run only this case; may be repeated")
    parser.add_argument("--rounds", type=positive, default=None, metavar="N", help="per case (default: 5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="tiny run: only checks that everything arrives")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table", help="format of the output")
    parser.add_argument(
        "--allow-missing", action="store_true", help="required ratios may be absent, for example without PostgreSQL"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=fullsync.DATA,
        metavar="DIR",
        help=f"folder with {fullsync.ROUTES} (default: ../shared/data beside the project; else routes are generated)",
    )
    parser.add_argument(
        "--peers",
        type=named,
        metavar="NAMES",
        help=f"peers of e2e, with commas, or none (default: {','.join(peers.NAMES)}; quick: {peers.POSTGRESQL})",
    )
    parser.add_argument("--e2e-matrix", action="store_true", help="e2e: every number of writers, changes and watchers")
    return parser.parse_args(arguments)


def named(text: str) -> Sequence[str]:
    """The type of ``--peers``."""
    try:
        return peers.parsed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def measure(options: argparse.Namespace) -> report.Report:
    """All rows. Raises PubSubError when a case cannot be completed."""
    rounds = options.rounds or (1 if options.quick else 5)
    console = Console(stderr=True)
    on = report.machine()
    rows: list[Row] = []
    required: list[str] = []

    def log(name: str, text: str) -> None:
        # No live display, because its thread would be forked.
        if console.is_terminal:
            console.print(f"\r{name}: {text}\x1b[K", end="", highlight=False)

    for name, case in cases(options.data).items():
        if not options.case or name in options.case:
            rows.extend(case(QUICK if options.quick else Sizes(), rounds, partial(log, name)))
            required.extend(REQUIRED[name])
    details = None
    if DRIVERS in (options.case or ()):
        from _bench.drivers import case as drivers  # it needs the extras of these drivers

        rows.extend(drivers.run(QUICK if options.quick else Sizes(), rounds, partial(log, DRIVERS)))
        required.extend(drivers.ROWS)
    if E2E in (options.case or ()):
        from _bench.e2e import run as e2e  # it needs the extras service and postgresql, which the other cases do not

        how = e2e.Options(rounds, options.quick, options.e2e_matrix, options.peers)
        result = e2e.run(how, partial(log, E2E))
        rows.extend(result.rows)
        details = result.details
        required.extend(figures.required(how.names))
    if console.is_terminal:
        console.print("\r\x1b[K", end="")
    wanted = () if options.allow_missing else required
    return report.report(rows, rounds, options.quick, on, details, wanted)


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
    if made.missed:
        return MISSED
    if not made.met:
        print(f"{PROG}: not measured: {', '.join(made.not_measured)}", file=sys.stderr)
        return NOT_RUN
    return MET
