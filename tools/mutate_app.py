"""``tools/mutate``: applies plausible errors to product code, one at a time, and runs the tests that must fail then.

The tables are ``tests/mutants/AREA.py``. The project is not changed: each error is applied to a private copy.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from _command_line import WRONG_OPTION, Parser, positive
from _mutants.table import Mutant, defects, table, tables
from _mutants.trial import Trial, TrialError, Verdict, tried
from _termination import interrupt_on_signals

ROOT = Path(__file__).resolve().parent.parent
ALL_CAUGHT, NOT_ALL_CAUGHT, INTERRUPTED = 0, 1, 130


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="tools/mutate",
        description="Applies mutants of tests/mutants, one at a time, and runs the tests that must catch them.",
        epilog="Exit status: 0 every mutant was caught; 1 a mutant was not caught; 2 invalid arguments.",
    )
    parser.add_argument("what", nargs="*", metavar="NAME|AREA", help="mutants or areas (default: all)")
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--jobs", type=positive, default=len(os.sched_getaffinity(0)), help="number of parallel trials")
    parser.add_argument("--table", type=Path, metavar="FILE", help="read mutants from this file instead")
    parser.add_argument(
        "--tests", action="append", metavar="NODE", help="run these tests (files, folders) instead of the named ones"
    )
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table")
    return parser.parse_args(arguments)


def chosen(areas: Mapping[str, Sequence[Mutant]], what: Sequence[str]) -> list[tuple[str, Mutant]]:
    """(area, mutant) pairs. Raises TrialError for an unknown name."""
    pairs = [(area, mutant) for area, mutants in areas.items() for mutant in mutants]
    unknown = sorted(set(what) - set(areas) - {mutant.name for _, mutant in pairs})
    if unknown:
        raise TrialError(f"there is no mutant and no area {unknown[0]!r}; see tools/mutate --list")
    return [(area, mutant) for area, mutant in pairs if not what or area in what or mutant.name in what]


def run(options: argparse.Namespace, pairs: Sequence[tuple[str, Mutant]]) -> list[Trial]:
    """Try the mutants, with one line of progress for each on standard error. Raises TrialError."""
    if options.tests:
        pairs = [(area, msgspec.structs.replace(mutant, tests=options.tests)) for area, mutant in pairs]
    ended = 0

    def progress(trial: Trial) -> None:
        nonlocal ended
        ended += 1
        print(f"[{ended}/{len(pairs)}] {line(trial)}", file=sys.stderr, flush=True)

    print("running the tests without a mutant …", file=sys.stderr, flush=True)
    return tried(ROOT, pairs, options.jobs, progress)


def line(trial: Trial) -> str:
    return f"{trial.outcome:14} {trial.area}/{trial.name}  {trial.by}  ({trial.seconds} s)"


def show(trials: Sequence[Trial], form: str) -> None:
    """Print the result: a table of the areas, and a line for each mutant that was not caught."""
    if form == "json":
        print(msgspec.json.format(msgspec.json.encode(trials), indent=2).decode())
        return
    ended = [each for each in Verdict if each is Verdict.CAUGHT or any(trial.outcome is each for trial in trials)]
    print(f"{'area':12}{'mutants':>9}" + "".join(f"{each:>16}" for each in ended))
    for area in [*sorted({trial.area for trial in trials}), "all"]:
        mine = [trial.outcome for trial in trials if area in (trial.area, "all")]
        print(f"{area:12}{len(mine):>9}" + "".join(f"{mine.count(each):>16}" for each in ended))
    for trial in trials:
        if trial.outcome is not Verdict.CAUGHT:
            print(line(trial))


def show_list(pairs: Sequence[tuple[str, Mutant]], form: str) -> None:
    if form == "json":
        plain = [{"area": area, **msgspec.to_builtins(mutant)} for area, mutant in pairs]
        print(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
        return
    for area, mutant in pairs:
        print(f"{area}/{mutant.name}  {mutant.path}  {mutant.wrong}".rstrip())


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    options = parse(arguments)
    interrupt_on_signals()
    try:
        areas = {options.table.stem: table(options.table)} if options.table else tables(ROOT)
        pairs = chosen(areas, options.what)
        if options.list:
            show_list(pairs, options.format)
            return ALL_CAUGHT
        # With --tests the tests of the table are not run, so an unfinished table need not name tests.
        for defect in [] if options.tests else defects(ROOT, areas):
            print(f"tools/mutate: {defect}", file=sys.stderr)
        trials = run(options, pairs) if pairs else []
    except (TrialError, OSError) as error:
        print(f"tools/mutate: {error}", file=sys.stderr)
        return WRONG_OPTION
    except KeyboardInterrupt:
        print("tools/mutate: interrupted; every process was stopped and every copy removed", file=sys.stderr)
        return INTERRUPTED
    show(trials, options.format)
    return ALL_CAUGHT if all(trial.outcome is Verdict.CAUGHT for trial in trials) else NOT_ALL_CAUGHT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
