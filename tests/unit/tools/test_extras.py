"""Each command of ``tools`` that installs less than the extra ``test`` starts with the packages that it installs."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools"

STARTS = {
    ("demo", "cli,service,audit,nats,redis"): ("demo_app.py", ["--help"]),
    ("spark_cluster", "cli,service,audit"): ("spark_cluster_app.py", ["--help"]),
}
"""By the command and its extras: the program and the arguments with which it installs them."""

WITHOUT = """
import runpy, sys

absent = set(sys.argv.pop(1).split(","))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"the extras do not install {name}", name=name)

sys.meta_path.insert(0, Absent())
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def installed_by(extras: set[str]) -> set[str]:
    """Names of the distributions that these extras of this project install."""
    waiting, found = [("pubsub-lib", frozenset(extras))], set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        try:
            texts = requires(name) or []
        except PackageNotFoundError:
            continue  # for another platform or version
        waiting += [
            (canonicalize_name(each.name), frozenset(each.extras))
            for each in map(Requirement, texts)
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*wanted, ""))
        ]
    return {name for name, _ in found}


def absent_after(extras: set[str]) -> set[str]:
    """Top-level modules of this environment's distributions that these extras do not install."""
    there = installed_by(extras) | {"pip", "setuptools"}
    return {
        module
        for module, names in packages_distributions().items()
        if there.isdisjoint(map(canonicalize_name, names)) and not module.startswith("_")
    }


def test_every_smaller_set_up_is_in_the_table() -> None:
    found = {
        (each.name, extras)
        for each in TOOLS.iterdir()
        if each.is_file() and not each.suffix
        for extras in re.findall(r"set_up ([a-z,]+)", each.read_text())
    }
    assert found - {(name, extras) for name, extras in found if extras in ("test", "docs")} == STARTS.keys()


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(("command", "extras"), sorted(STARTS))
def test_a_command_starts_with_what_it_installs(command: str, extras: str) -> None:
    absent = absent_after(set(extras.split(",")))
    assert {"mypy", "selenium"} <= absent
    program, arguments = STARTS[command, extras]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, ",".join(sorted(absent)), str(TOOLS / program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:"), done.stdout
