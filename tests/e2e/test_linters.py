"""The files of a deployment in the eyes of linters: YAML by yamllint, the Dockerfile by hadolint."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import IN_CI

ROOT = Path(__file__).parents[2]
RULES = "{extends: default, rules: {document-start: disable, line-length: disable}}"
"""All but two: most files are one document, and texts of alerts and command lines stay on one line."""


def yamllint(*files: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "yamllint", "--strict", "--format", "parsable", "-d", RULES, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def hadolint(file: Path) -> "subprocess.CompletedProcess[str]":
    """Skips where its package has no program for the processor."""
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        (pytest.fail if IN_CI else pytest.skip)("no hadolint found; install the extra test")
    command = [program, "--no-color", "--failure-threshold", "style", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_yaml_files_have_no_findings() -> None:
    files = [path for folder in ("etc", "tests") for path in (ROOT / folder).rglob("*.yml")]
    assert {"compose.yml", "publisher-service.yml", "prometheus-rules.yml"} <= {path.name for path in files}
    done = yamllint(*files)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: 1\na: 2\n", "key-duplicates"),
        ("a:\n  - 1\n - 2\n", "syntax"),
        ("a: yes\n", "truthy"),
        ("a: 1", "new-line-at-end-of-file"),
    ],
)
def test_errors_in_yaml_are_found(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "a.yml").write_text(text)
    done = yamllint(tmp_path / "a.yml")
    assert done.returncode != 0
    assert rule in done.stdout


def test_dockerfile_has_no_findings() -> None:
    done = hadolint(ROOT / "etc" / "container" / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_errors_in_a_dockerfile_are_found(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python:latest\nRUN cd /tmp\nCMD python -m this\n")
    done = hadolint(file)
    assert done.returncode == 1
    assert {word for word in done.stdout.split() if word.startswith("DL")} >= {"DL3007", "DL3003", "DL3025"}
