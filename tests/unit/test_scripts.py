"""The entry points: what setup.cfg names, and Ctrl-C while a command is being imported."""

import configparser
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib import scripts

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = {"pubsub_db": "cliff", "publisher_service": "oslo_config", "pubsub_audit": "msgspec"}
"""Of each command a package that it imports."""


def call(function: str, *arguments: str, first: Path | None = None) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(map(str, (*([] if first is None else [first]), ROOT, ROOT / "drivers")))
    code = f"import sys; from pubsub_lib.scripts import {function}; sys.exit({function}())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_command_has_its_entry_point() -> None:
    registry = configparser.ConfigParser()
    registry.read(ROOT / "setup.cfg")
    lines = registry["options.entry_points"]["console_scripts"].strip().splitlines()
    assert lines == [
        "publisher-service = pubsub_lib.scripts:publisher_service",
        "pubsub-audit = pubsub_lib.scripts:pubsub_audit",
        "pubsub-db = pubsub_lib.scripts:pubsub_db",
    ]
    assert all(hasattr(scripts, line.partition(":")[2]) for line in lines)


@pytest.mark.parametrize(
    ("function", "arguments", "code", "sentence"),
    [
        ("pubsub_db", ["tabels"], 2, "pubsub-db: there is no command 'tabels'"),
        ("publisher_service", ["--config-file", "/nowhere/net.conf"], 2, "'/nowhere/net.conf' cannot be read"),
        ("pubsub_audit", ["report", "/nowhere"], 64, "pubsub-audit: "),
    ],
)
def test_wrong_usage_has_the_exit_code_of_the_table(
    function: str, arguments: list[str], code: int, sentence: str
) -> None:
    done = call(function, *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("function", sorted(IMPORTED))
def test_ctrl_c_during_the_import_shows_no_traceback(function: str, tmp_path: Path) -> None:
    package = tmp_path / IMPORTED[function]
    package.mkdir()
    (package / "__init__.py").write_text(f"import os\nos.kill(os.getpid(), {int(signal.SIGINT)})\n")
    done = call(function, "tables", first=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("function", "package", "code", "extra"),
    [("pubsub_audit", "pyarrow", 64, "audit"), ("pubsub_db", "cliff", 2, "cli")],
)
def test_missing_extra_is_one_sentence(function: str, package: str, code: int, extra: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(f"raise ModuleNotFoundError('gone', name='{package}')\n")
    done = call(function, "--version", first=tmp_path)
    command = function.replace("_", "-")
    sentence = f"{command}: {package} is not installed; run: pip install pubsub-lib[{extra}]\n"
    assert (done.returncode, done.stdout, done.stderr) == (code, "", sentence)


def test_broken_installation_of_the_audit_is_no_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> int:
        raise ModuleNotFoundError("gone", name="pubsub_lib.audit.main")

    monkeypatch.setattr(scripts, "_run", gone)
    with pytest.raises(ModuleNotFoundError):
        scripts.pubsub_audit()


def test_the_entry_points_import_no_command() -> None:
    code = "import sys, pubsub_lib.scripts; print(*(n for n in sys.modules if n.startswith(('sqlalchemy', 'cliff'))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
