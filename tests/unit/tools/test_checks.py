"""What ``tools/test`` looks for before it runs the tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import _checks
import pytest

from pubsub_lib.errors import ConfigError

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

@pytest.mark.quick_variants(2)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_few(number): ...

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
def test_one(number): ...

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("database", ["sqlite", "mariadb"])
def test_databases(database, number): ...

@pytest.mark.parametrize("database", ["sqlite", "mariadb"])
def test_database(database): ...

@pytest.mark.quick_variants("b-", "-7")
@pytest.mark.parametrize("number", [6, 7])
@pytest.mark.parametrize("letter", ["a", "b", "c"])
def test_parts(letter, number): ...

def test_without_variants(): ...
"""
QUICK = [
    "test_few[1]", "test_few[2]", "test_one[1]", "test_databases[sqlite-1]", "test_databases[sqlite-2]",
    "test_databases[mariadb-1]", "test_database[sqlite]", "test_database[mariadb]", "test_without_variants",
    "test_parts[a-7]", "test_parts[b-6]", "test_parts[b-7]", "test_parts[c-7]",
]  # fmt: skip
LATER = [
    "test_few[3]", "test_few[4]", "test_one[2]", "test_databases[mariadb-2]", "test_parts[a-6]", "test_parts[c-6]",
]  # fmt: skip


def put(folder: Path, name: str) -> None:
    """A program that does nothing."""
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_missing_shells_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no zsh and no fish found; install the packages zsh and fish"):
        _checks.shells()
    put(tmp_path, "fish")
    with pytest.raises(ConfigError, match=r"no zsh found; install the packages zsh$"):
        _checks.shells()
    put(tmp_path, "zsh")
    assert _checks.shells() == "zsh fish"


def test_package_that_only_root_may_install_is_named_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "apt-get")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    def missing() -> str:
        raise ConfigError("no thing found; install the package thing")

    sentence = _checks.ensure_package(missing, "thing", "thing")
    assert sentence.startswith("no thing found; install the package thing (the installation failed: only root may")
    assert "No thing found" in capsys.readouterr().out


def test_long_tests_run_only_with_all_or_when_they_are_named() -> None:
    parallel = _checks.side_by_side()
    assert _checks.selection([]) == [*parallel, *_checks.END_HANGING, "-m", "not long"]
    assert _checks.selection(["--all", "--durations=9"]) == [*parallel, "--durations=9"]
    assert _checks.selection(["tests/e2e/test_chaos.py", "-x"]) == ["tests/e2e/test_chaos.py", "-x"]


def test_hanging_test_is_failed_by_its_name_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import threading\ndef test_hangs():\n    threading.Event().wait()\ndef test_other():\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "1", "-o", "faulthandler_timeout=2", *_checks.END_HANGING]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "crashed while running 'test_one.py::test_hangs'" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_all_tests_are_imported_beside_the_checks_before_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their bytecode is complete before the parallel test processes start."""
    (tmp_path / "test_one.py").write_text("def test_one():\n    raise AssertionError('a test ran')\n")
    monkeypatch.setattr(_checks, "ROOT", tmp_path)
    with _checks.compiling({**os.environ, "PYTHONDONTWRITEBYTECODE": ""}) as running:
        pass
    assert running.returncode == 0
    assert list((tmp_path / "__pycache__").glob("test_one.*pytest*.pyc"))


@pytest.mark.parametrize(("expression", "expected"), [("not long", QUICK), ("long", LATER)])
def test_later_variants_are_long(expression: str, expected: list[str], tmp_path: Path) -> None:
    done = collected(tmp_path, TESTS, expression)
    listed = {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}
    assert listed == set(expected), done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("tests", "sentence"),
    [
        ("def test_one(): ...", "test_it.py::test_one is marked quick_variants and has no variants"),
        (
            '@pytest.mark.parametrize("letter", ["a", "b"])\ndef test_one(letter): ...',
            "no variant has this part of quick_variants: test_it.py::test_one: 'c'",
        ),
    ],
)
def test_quick_variants_that_do_not_exist_are_refused(tests: str, sentence: str, tmp_path: Path) -> None:
    done = collected(tmp_path, f"import pytest\n@pytest.mark.quick_variants('c')\n{tests}\n", "not long")
    assert done.returncode != 0
    assert sentence in done.stdout + done.stderr


def collected(folder: Path, tests: str, expression: str) -> "subprocess.CompletedProcess[str]":
    """The output of a pytest that lists the tests."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(tests)
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "-m", expression,
        "-c", os.devnull, "--rootdir", str(folder),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


CHECK = """
import os, signal, sys
import _checks
signal.signal(signal.SIGTERM, _checks.terminate)
with _checks.temporary_files() as variables:
    print(variables["TMPDIR"], flush=True)
    program = "trap 'echo the check ended; exit 3' TERM; echo the check runs; while :; do sleep 0.1; done"
    _checks.check("x", ["sh", "-c", program], os.environ)
"""


def test_sigterm_ends_the_check_and_removes_the_temporary_files(tmp_path: Path) -> None:
    folder_in_memory = f"_scratch.MEMORY = pathlib.Path({str(tmp_path)!r})"
    code = f"import _scratch, pathlib\n{folder_in_memory}\n_scratch.has_room = bool\n{CHECK}"
    environment = {each: value for each, value in os.environ.items() if each != "TMPDIR"}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'tools'}"
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip())
        assert folder.parent == tmp_path
        while "the check runs" not in running.stdout.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        assert "the check ended" in running.stdout.read()
    assert running.returncode != 0
    assert not folder.exists()
