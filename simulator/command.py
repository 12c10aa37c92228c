"""``tools/simulate``: run many seeds, or one with its trace.

Exit status: 0 every invariant held; 1 one did not (the shrunk seed is printed as a command); 2 wrong arguments.
"""

import argparse
import contextlib
import importlib.util
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from simulator.liar_plan import LIES
from simulator.plan import FAULTS, Cuts
from simulator.run import Result, run_seed
from simulator.shrink import command, shrink
from simulator.tree_plan import TREE_FAULTS

MUTANTS = Path(__file__).resolve().parents[1] / "tests" / "simulator" / "mutants.py"
MAX_SHRUNK = 3
"""Maximum number of failing seeds that are shrunk; the others are only listed."""

Infection = Callable[[str], AbstractContextManager[None]]
_here: list[tuple[Cuts, AbstractContextManager[None]]] = []
"""In a worker process: the cuts and the mutant of every run."""


def main(arguments: Sequence[str], out: TextIO = sys.stdout) -> int:
    """Run the command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    wrong = _wrong(options)
    if wrong:
        parser.error(wrong)
    cuts = Cuts(
        options.without, options.ops, options.writers, options.services, options.replicas, options.calm, options.liars,
        options.trees,
    )  # fmt: skip
    infection = _infection(options.mutant)
    if options.seed is not None:
        with infection:
            return _one(options.seed, cuts, options.mutant, options.trace, out)
    return _many(options, cuts, out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="number of seeds (300)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed (0)")
    parser.add_argument("--seed", type=int, metavar="S", help="run this seed only")
    parser.add_argument("--trace", action="store_true", help="print every step of --seed")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes (2)")
    parser.add_argument("--mutant", default="", metavar="NAME", help="with this bug of tests/simulator/mutants.py")
    without = f"leave out faults and lies: {', '.join((*FAULTS, *LIES, *TREE_FAULTS))}"
    parser.add_argument("--without", type=_kinds, default=(), metavar="KIND,…", help=without)
    parser.add_argument("--liars", action="store_true", help="with publishers and workers that lie")
    parser.add_argument("--trees", action="store_true", help="with relays between services and replicas")
    parser.add_argument("--ops", type=int, metavar="N", help="transactions before faults stop, and after")
    for name in ("writers", "services", "replicas"):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"maximum number of {name}")
    parser.add_argument("--calm", type=float, metavar="SECONDS", help="when faults stop")
    return parser


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    known = (*FAULTS, *LIES, *TREE_FAULTS)
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown fault: {', '.join(unknown)}; the faults are {', '.join(known)}")
    return kinds


def _wrong(options: argparse.Namespace) -> str:
    """The error in the options; "" without one."""
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            return f"--{name} must be 1 or more, not {getattr(options, name)}"
    for name in ("ops", "writers", "services", "replicas", "calm"):
        value = getattr(options, name)
        if value is not None and value < 0:
            return f"--{name} must not be negative, but is {value}"
    if options.trace and options.seed is None:
        return "--trace shows one seed; give it by --seed S"
    if options.mutant and options.mutant not in (names := _mutants().MUTANTS):
        return f"unknown mutant {options.mutant!r}; the mutants are {', '.join(names)}"
    return ""


def _mutants() -> Any:
    """The module of mutants, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("simulator_mutants", MUTANTS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _infection(mutant: str) -> AbstractContextManager[None]:
    if not mutant:
        return contextlib.nullcontext()
    infected: AbstractContextManager[None] = _mutants().infected(mutant)
    return infected


# -- one seed --------------------------------------------------------------------------------------------------------


def _one(seed: int, cuts: Cuts, mutant: str, trace: bool, out: TextIO) -> int:
    result = run_seed(seed, cuts, tracing=True, show=(lambda line: _print(out, line)) if trace else None)
    _print(out, f"seed {seed}: {result.transactions} transactions, {result.steps} steps, trace {result.trace_hash}")
    if not result.invariant:
        _print(out, "every invariant held")
        return 0
    _print(out, f"violation at {result.ended:.4f} s: {result.what}")
    if not trace:
        _print(out, command(seed, shrink(seed, cuts, result.invariant), mutant))
    return 1


# -- many ------------------------------------------------------------------------------------------------------------


def _many(options: argparse.Namespace, cuts: Cuts, out: TextIO) -> int:
    started = time.monotonic()
    results = list(_progress(_run_all(options, cuts), options.seeds, out))
    seconds = time.monotonic() - started
    failed = sorted((result for result in results if result.invariant), key=lambda result: result.seed)
    for line in table(results):
        _print(out, line)
    _print(out, f"{len(results)} seeds in {seconds:.0f} s, {len(failed)} with a violation")
    with _infection(options.mutant):
        for result in failed[:MAX_SHRUNK]:
            _print(out, f"seed {result.seed}: {result.what[:400]}")
            _print(out, f"  {command(result.seed, shrink(result.seed, cuts, result.invariant), options.mutant)}")
    if len(failed) > MAX_SHRUNK:
        _print(out, "also: " + ", ".join(f"{result.seed} ({result.invariant})" for result in failed[MAX_SHRUNK:][:40]))
    return 1 if failed else 0


def _run_all(options: argparse.Namespace, cuts: Cuts) -> Iterator[Result]:
    seeds = range(options.first, options.first + options.seeds)
    if options.jobs <= 1:
        with _infection(options.mutant):
            for seed in seeds:
                yield run_seed(seed, cuts)
        return
    with multiprocessing.get_context("spawn").Pool(options.jobs, _prepare, (cuts, options.mutant)) as pool:
        yield from pool.imap_unordered(_run_here, seeds, chunksize=8)
        # terminate() may never end on a busy machine: the pool can start a new worker while it ends the others.
        pool.close()
        pool.join()


def _prepare(cuts: Cuts, mutant: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    infection = _infection(mutant)
    infection.__enter__()  # until the worker ends
    _here.append((cuts, infection))


def _run_here(seed: int) -> Result:
    return run_seed(seed, _here[0][0])


def _progress(results: Iterable[Result], total: int, out: TextIO) -> Iterable[Result]:
    if not out.isatty():
        return results
    try:
        from rich.progress import track
    except ImportError:
        return results
    return track(results, "seeds", total=total)


def table(results: Sequence[Result]) -> list[str]:
    """The injected faults, the syncs by cause and the steps with faults, as lines."""
    counts: Counter[str] = Counter()
    seeds: Counter[str] = Counter()
    syncs: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
        seeds.update(result.counts.keys())
        syncs.update(result.syncs)
        struck.update(result.struck)
    lines = [f"{'fault':<22}{'fired':>9}{'in seeds':>10}"]
    lines += [f"{kind:<22}{counts[kind]:>9}{seeds[kind]:>10}" for kind in dict.fromkeys((*FAULTS, *sorted(counts)))]
    lines.append("syncs by cause: " + ", ".join(f"{cause} {number}" for cause, number in sorted(syncs.items())))
    reached = sorted({step for result in results for step in result.reached})
    for what, done in (("kill", "killed"), ("pause", "paused")):
        spared = [f"{kind} {label}" for kind, label in reached if not struck[f"{what} {kind} before {label}"]]
        line = f"{done} before {len(reached) - len(spared)} of {len(reached)} steps of writers, services and replicas"
        lines.append(f"{line}; never before: {', '.join(spared[:6])}" if spared else line)
    return lines


def _print(out: TextIO, line: str) -> None:
    out.write(line + "\n")
