"""The command ``tools/simulate``: its output, the shrinking of a failing seed, its exit status."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.command import main
from simulator.plan import Cuts, draw
from simulator.run import run_seed
from simulator.shrink import command, shrink
from tests.simulator.caught import CAUGHT
from tests.simulator.mutants import infected

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANT = "waiting_unbounded"


def simulate(*arguments: str) -> tuple[int, list[str]]:
    out = io.StringIO()
    return main(arguments, out), out.getvalue().splitlines()


def failing() -> tuple[int, str]:
    """A seed that catches the mutant, and the violated invariant."""
    first = CAUGHT[MUTANT].seed
    with infected(MUTANT):
        for seed in (*range(first, 300), *range(first)):
            result = run_seed(seed)
            if result.invariant:
                return seed, result.invariant
    raise AssertionError(f"{MUTANT} is not caught")


def test_seed_without_violation_prints_hash_and_exits_0() -> None:
    status, output = simulate("--seed", "42")
    assert status == 0
    assert re.fullmatch(r"seed 42: \d+ transactions, \d+ steps, trace [0-9a-f]{64}", output[0])
    assert output[1:] == ["every invariant held"]


def test_trace_prints_every_step() -> None:
    status, output = simulate("--seed", "42", "--trace")
    assert status == 0
    assert output[-2] == simulate("--seed", "42")[1][0]
    steps = int(output[-2].split()[4])
    assert all(re.match(r" *\d+\.\d{4} \w+ +[·\w]", line) for line in output[:-2])
    assert sum(" · " in line for line in output) == steps


def test_many_seeds_print_a_table_and_a_total() -> None:
    status, output = simulate("--seeds", "5", "--first", "40", "--jobs", "1")
    assert status == 0
    assert output[0].split() == ["fault", "fired", "in", "seeds"]
    assert re.fullmatch(r"5 seeds in \d+ s, 0 with a violation", output[-1])


def test_failing_seed_is_shrunk_to_a_command_with_the_same_violation() -> None:
    seed, invariant = failing()
    status, output = simulate("--seed", str(seed), "--mutant", MUTANT)
    assert status == 1
    assert f": {invariant}: " in output[-2]
    print(output[-1])
    program, *arguments = shlex.split(output[-1])
    assert program == "tools/simulate"
    assert arguments[-1] == "--trace"
    status, shown = simulate(*arguments)
    assert status == 1
    assert shown[-1].startswith(f"violation at {shown[-1].split()[2]} s: {invariant}: ")
    # The last line of the trace has the violation too.
    assert f"monitor      violation {invariant}: " in shown[-3]


@pytest.mark.long
def test_many_seeds_list_and_shrink_failing_ones() -> None:
    seed, invariant = failing()
    status, output = simulate("--seeds", "1", "--first", str(seed), "--mutant", MUTANT, "--jobs", "2")
    assert status == 1
    assert any(line.startswith(f"seed {seed}: {invariant}: ") for line in output)
    assert output[-1].startswith(f"  tools/simulate --seed {seed} ")
    assert f"--mutant {MUTANT}" in output[-1]


@pytest.mark.long
def test_shrinking_removes_irrelevant_faults_and_participants() -> None:
    seed, invariant = failing()
    with infected(MUTANT):
        cuts = shrink(seed, Cuts(), invariant)
        assert run_seed(seed, cuts).invariant == invariant
    before, after = draw(seed), draw(seed, cuts)
    assert len(after.faults) < len(before.faults)
    assert (after.writers, len(after.replicas)) <= (before.writers, len(before.replicas))


def test_shrinking_returns_cuts_that_cannot_be_reduced() -> None:
    cuts = Cuts(ops=7)
    assert shrink(42, cuts, "an invariant that holds") == cuts


def test_command_names_every_cut() -> None:
    cuts = Cuts(("drop", "kill"), ops=3, writers=1, services=0, replicas=2, calm=1.5)
    words = "--without drop,kill --ops 3 --writers 1 --services 0 --replicas 2 --calm 1.5 --mutant m --trace"
    assert command(9, cuts, "m") == f"tools/simulate --seed 9 {words}"
    assert command(9, Cuts(liars=True)) == "tools/simulate --seed 9 --liars --trace"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "--seeds must be 1 or more, not 0"),
        (["--seeds", "many"], "invalid int value: 'many'"),
        (["--jobs", "-1"], "--jobs must be 1 or more, not -1"),
        (["--seed", "1", "--without", "drop,rain"], "unknown fault: rain"),
        (["--seed", "1", "--mutant", "none"], "unknown mutant 'none'"),
        (["--trace"], "--trace shows one seed"),
        (["--seed", "1", "--ops", "-2"], "--ops must not be negative"),
        (["--nothing"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_end_with_2(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--seed", "42"], 0), (["--seed", "{}", "--mutant", MUTANT, "--trace"], 1), (["-x"], 2)]
)
def test_exit_status_of_the_program(arguments: list[str], status: int) -> None:
    words = [each.format(failing()[0]) for each in arguments]
    program = [sys.executable, "tools/_simulate.py", *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
