"""Type checkers and typed tables: mypy and pyright check typed_program.py, and find each line with a mistake.

pyright runs as basedpyright: its wheel contains the same checker and needs no download at its first run.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import IN_CI

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = ROOT / "tests" / "e2e" / "typed_program.py"
LONG: Final = 300.0
MISTAKES: Final = (
    'replica.add_index("by switch", ports, lambda port: port.swich)',
    'replica.get(ports, "p1").switch',  # it may be None
    'replica.record(ports, "p1").value',
    'replica.get(7, "p1")',
    'replica.get(ports, "p1", "t")',
    'for key, port in replica.iterate(ports): port.name',
    'replica.iterate(ports, on_error="ignore")',
    "replica.records(ports)[0].value.name",
    'Table("lport", "Port")',
)  # fmt: skip

Wrong = set[int]
"""Numbers of the lines with an error of a checker."""


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Return the output of a checker; its exit code must be 0 (no error) or 1 (errors in the program)."""
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=LONG, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(file: Path, folder: Path) -> Wrong:
    """Check with ``mypy --strict``."""
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={folder / 'cache'}"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    command = [sys.executable, "-m", "mypy", *options, "--no-pretty", "--hide-error-context", str(file)]
    output = run(command, folder, environment)
    return {int(line.split(":")[1]) for line in output.splitlines() if ": error: " in line}


def pyright(file: Path, folder: Path) -> Wrong:
    """Check with pyright's strict mode."""
    if importlib.util.find_spec("basedpyright") is None:
        if IN_CI:
            pytest.fail("basedpyright is not installed; it belongs to the extra 'test'", pytrace=False)
        pytest.skip("no basedpyright; run: pip install basedpyright")
    configuration = {"include": [str(file)], "typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    found = json.loads(run(command, folder, dict(os.environ)))
    assert found["summary"]["filesAnalyzed"] == 1
    return {each["range"]["start"]["line"] + 1 for each in found["generalDiagnostics"] if each["severity"] == "error"}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_type_checkers_accept_the_program_and_find_each_mistake(
    checker: Callable[[Path, Path], Wrong], tmp_path: Path
) -> None:
    good = PROGRAM.read_text()
    begin = len(good.splitlines()) + 4
    wrong = "".join(f"    {line}\n" for line in MISTAKES)
    file = tmp_path / "program.py"
    file.write_text(f"{good}\n\ndef with_mistakes(replica: Replica) -> None:\n{wrong}")
    assert checker(file, tmp_path) == set(range(begin, begin + len(MISTAKES)))
