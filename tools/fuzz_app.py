"""``tools/fuzz``: runs the targets of ``_fuzz`` one after another, prints a line for each, and saves findings."""

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the builders of tests are not installed

from _command_line import WRONG_OPTION, Parser, positive
from _fuzz import files, store_rows, syncs, wire
from _fuzz.runner import Done, Finding, add_to_corpus, fuzz, outcome_of, read_corpus, save
from _fuzz.target import Target
from _termination import run

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
FINDINGS = ROOT / "fuzz-findings"


def targets(folder: Path) -> list[Target]:
    """All targets; their files are in ``folder``."""
    return [*wire.targets(), *syncs.targets(), *files.targets(folder), *store_rows.targets(folder)]


@contextmanager
def opened() -> Iterator[list[Target]]:
    """All targets with a folder of their own; without the warnings that the readers log."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="pubsub-fuzz-") as folder:
        made = targets(Path(folder))
        try:
            yield made
        finally:
            for each in made:
                each.close()
            logging.disable(logging.NOTSET)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = _parse(arguments)
    with opened() as made:
        names = [each.name for each in made]
        unknown = sorted(set(options.target) - set(names))
        if unknown:
            print(f"tools/fuzz: there is no target {unknown[0]!r}; the targets are {', '.join(names)}", file=sys.stderr)
            return WRONG_OPTION
        chosen = [each for each in made if not options.target or each.name in options.target]
        if options.input is not None:
            return _again(chosen, options.input)
        print(f"seed {options.seed}", flush=True)
        results = [_run(each, options, len(chosen)) for each in chosen]
    found = [finding for each in results for finding in each.findings]
    for finding in found:
        _save(finding)
    print(f"{sum(each.executions for each in results)} executions, {len(found)} findings", flush=True)
    return int(bool(found))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="tools/fuzz",
        description="Feeds mutated bytes to the readers of messages, journals, rows and files. Only documented errors "
        "may be raised.",
        epilog="Exit status: 0 only documented errors; 1 findings, saved in fuzz-findings; 2 invalid arguments.",
    )
    parser.add_argument("target", nargs="*", help="targets (default: all)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=positive, default=30, help="of all targets together (30)")
    length.add_argument("--executions", type=positive, help="of each target, instead of --seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32), help="default: random")
    parser.add_argument("--keep", action="store_true", help="add inputs with new outcomes to the corpora of the tests")
    parser.add_argument("--input", type=Path, metavar="FILE", help="run only this input, on the one target named")
    options = parser.parse_args(arguments)
    if options.input is not None and len(options.target) != 1:
        parser.error("--input needs one target")
    return options


def _run(target: Target, options: argparse.Namespace, number: int) -> Done:
    if options.executions:
        most: int = options.executions
        done = fuzz(target, read_corpus(CORPUS, target), options.seed, lambda executions: executions < most)
    else:
        until = time.monotonic() + options.seconds / number
        done = fuzz(target, read_corpus(CORPUS, target), options.seed, lambda _: time.monotonic() < until)
    rate = done.executions / max(done.seconds, 0.001)
    print(
        f"{done.target:14}{done.executions:10} executions, {rate:8.0f}/s, {len(done.outcomes):4} outcomes, "
        f"{len(done.findings)} findings",
        flush=True,
    )
    if options.keep:
        print(f"{'':14}{add_to_corpus(CORPUS, target.name, done.added):10} inputs kept", flush=True)
    return done


def _again(chosen: Sequence[Target], path: Path) -> int:
    (target,) = chosen
    outcome, error = outcome_of(target, path.read_bytes())
    print(error or outcome, flush=True)
    return int(bool(error))


def _save(finding: Finding) -> None:
    path = save(FINDINGS, finding.target, finding.data)
    print(f"\n{finding.target}: an error that is not documented; the input is in {path}\n{finding.error}", flush=True)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(run("tools/fuzz", lambda: main(sys.argv[1:])))
