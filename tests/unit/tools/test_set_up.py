"""Commands that set up their environment: errors, when they set it up again, and their output."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _processes import poll

from pubsub_lib.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bootstrap = load("_bootstrap")
checks = load("_checks")


def find_python(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = ["/bin/bash", "-c", f'. "{ROOT}/tools/_bootstrap.sh" && PATH="{folder}" find_python']
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_missing_python_is_one_sentence(tmp_path: Path) -> None:
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("No Python of version 3.11 or newer is in PATH")
    assert done.stderr.count("\n") == 1


def test_find_python_skips_a_failing_shim(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python3.12").symlink_to(sys.executable)
    assert find_python(tmp_path).stdout == "python3.12\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in bootstrap.DECIDES:
        (tmp_path / name).write_text("one\n")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    return tmp_path


def test_set_up_runs_again_when_something_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(bootstrap, "make_venv", lambda: (project / ".venv").mkdir(exist_ok=True))
    monkeypatch.setattr(bootstrap, "run", lambda what, command: done.append(f"{what} {command[-1]}"))
    bootstrap.set_up("cli")
    bootstrap.set_up("cli")
    assert done == [f"pip install {project}[cli]"]
    bootstrap.set_up("test")
    bootstrap.set_up("cli")
    assert done[1:] == [f"pip install {project}[test]"]
    (project / "setup.cfg").write_text("two\n")
    bootstrap.set_up("cli")
    assert done[2:] == [f"pip install {project}[cli]"]


def locked(project: Path, monkeypatch: pytest.MonkeyPatch, *, available: bool) -> list[list[str]]:
    """A project with tested versions; returns the commands that will be run."""
    (project / bootstrap.CONSTRAINTS).parent.mkdir()
    (project / bootstrap.CONSTRAINTS).write_text("msgspec==0.20\n")
    monkeypatch.setattr(bootstrap, "make_venv", lambda: (project / ".venv").mkdir(exist_ok=True))
    commands: list[list[str]] = []

    def run(what: str, command: list[object]) -> None:
        commands.append([str(each) for each in command[1:]])
        if "-c" in command and not available:
            raise bootstrap.SetUpError(what)

    monkeypatch.setattr(bootstrap, "run", run)
    return commands


def test_set_up_installs_the_tested_versions_and_again_when_they_change(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = locked(project, monkeypatch, available=True)
    constraints = project / bootstrap.CONSTRAINTS
    bootstrap.set_up("cli")
    bootstrap.set_up("cli")
    assert commands == [["-m", "pip", "install", "-q", "-c", str(constraints), "-e", f"{project}[cli]"]]
    constraints.write_text("msgspec==0.21\n")
    bootstrap.set_up("cli")
    assert len(commands) == 2


def test_set_up_without_the_tested_versions_prints_that_and_installs_the_newest(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = locked(project, monkeypatch, available=False)
    bootstrap.set_up("cli")
    assert [("-c" in each) for each in commands] == [True, False]
    assert "The versions of etc/constraints.txt cannot be installed here" in capsys.readouterr().err


def test_a_set_up_that_failed_is_tried_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "make_venv", lambda: (project / ".venv").mkdir(exist_ok=True))

    def fail(what: str, command: object) -> None:
        raise bootstrap.SetUpError(what)

    monkeypatch.setattr(bootstrap, "run", fail)
    for _ in range(2):
        with pytest.raises(bootstrap.SetUpError, match="pip install"):
            bootstrap.set_up("cli")


def test_a_command_that_fails_shows_its_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(bootstrap.SetUpError, match=r"installing failed with status 3; see its output above"):
        bootstrap.run("installing", ["sh", "-c", "echo reason; exit 3"])
    assert capfd.readouterr().err == "reason\n"


def test_ensure_reports_a_failed_installation_in_one_sentence() -> None:
    def probe() -> None:
        raise ConfigError("no MariaDB found; install it")

    sentence = checks.ensure(probe, ["sh", "-c", "echo not allowed >&2; exit 1"], "installing")
    assert sentence == (
        "no MariaDB found; install it (the installation failed: not allowed); tests that need it are not run."
    )


def test_ensure_does_not_install_an_existing_server() -> None:
    assert checks.ensure(lambda: None, ["false"], "installing") == ""


@pytest.mark.parametrize(("user", "text"), [(0, "installing the-package"), (1000, "only root may install it")])
def test_only_root_installs_system_packages(
    user: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho asked: $* >&2\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    def probe() -> None:
        raise ConfigError("no tmux found; install the package tmux")

    missing = checks.ensure_package(probe, "tmux", "the-package")
    assert text in capsys.readouterr().out + missing
    assert missing.startswith("no tmux found; install the package tmux (the installation failed: ")
    assert ("asked: install -qy --no-install-recommends the-package" in missing) is (user == 0)


def test_a_check_keeps_its_last_line_and_status() -> None:
    result = checks.check("x", ["sh", "-c", "echo one; echo two; echo; exit 4"], os.environ)
    assert (result.status, result.closing) == (4, "two")


_WITHOUT_MARIADB = """
import _servers
_servers._path_folders = list
def test_it(mariadb_url): pass
"""


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(("ci", "status", "word"), [("true", 1, "ERROR"), ("", 0, "SKIPPED")])
def test_missing_server_is_an_error_only_in_ci(ci: str, status: int, word: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(_WITHOUT_MARIADB)
    command = [sys.executable, "-m", "pytest", "-rsE", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}", "CI": ci}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    assert word in done.stdout
    assert "no MariaDB server found" in done.stdout


# Starts a server and then waits for a signal, so that it can be ended in the middle of a test.
_ENDED_IN_THE_MIDDLE = """
import pathlib, time
def test_waits(private_{kind}):
    report = pathlib.Path(__file__).with_name("report")
    report.with_suffix(".new").write_text(f"{{private_{kind}._process.pid}} {{private_{kind}._folder}}")
    report.with_suffix(".new").rename(report)
    while True:  # one long wait would miss a signal that comes just before it
        time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("ending", "kind", "arguments"),
    [
        pytest.param(signal.SIGINT, "postgres", [], marks=[pytest.mark.postgresql, pytest.mark.long]),
        pytest.param(signal.SIGTERM, "postgres", [], marks=[pytest.mark.postgresql, pytest.mark.long]),
        pytest.param(signal.SIGTERM, "postgres", ["-n", "1"], marks=pytest.mark.postgresql),
        pytest.param(signal.SIGINT, "mariadb", [], marks=pytest.mark.mariadb),
        pytest.param(signal.SIGTERM, "mariadb", [], marks=[pytest.mark.mariadb, pytest.mark.long]),
    ],
)
def test_no_server_is_left_after(
    ending: signal.Signals, kind: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(_ENDED_IN_THE_MIDDLE.format(kind=kind))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        report = tmp_path / "report"
        assert poll(lambda: report.exists() or tests.poll() is not None, 300)
        tests.send_signal(ending)
        rest = tests.stdout.read()
    assert report.exists(), rest
    pid, folder = report.read_text().split()
    assert not Path(folder).exists(), rest
    assert not Path(f"/proc/{pid}").exists(), rest
    assert tests.returncode == 2, rest


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments in which the tests were compiled, which takes long; ``test_checks.py`` tests it."""
    found: list[dict[str, str]] = []

    def compiling(environment: dict[str, str]) -> Any:
        found.append(environment)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(checks, "compiling", compiling)
    return found


def test_checks_write_bytecode(monkeypatch: pytest.MonkeyPatch, compiled: list[dict[str, str]]) -> None:
    written: list[bool] = []

    def check(name: str, command: list[str], environment: dict[str, str]) -> Any:
        code = "import sys; print(sys.dont_write_bytecode)"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        written.append(done.stdout == "False\n")
        return checks.Result(name, 0, 0.0, "")

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(checks, "ensure_servers", list)
    monkeypatch.setattr(checks, "check", check)
    assert checks.main([]) == 0
    assert set(written) == {True}
    assert [each["PYTHONDONTWRITEBYTECODE"] for each in compiled] == [""]


def test_named_tests_run_in_one_process(monkeypatch: pytest.MonkeyPatch, compiled: list[dict[str, str]]) -> None:
    ran: list[list[str]] = []

    def check(name: str, command: list[str], environment: object) -> Any:
        ran.append(command)
        return checks.Result(name, 0, 0.0, "")

    monkeypatch.setattr(checks, "ensure_servers", list)
    monkeypatch.setattr(checks, "check", check)
    assert checks.main(["tests/unit/test_errors.py::one"]) == 0
    assert ran[-1][-2:] == ["pytest", "tests/unit/test_errors.py::one"]
    assert compiled == []
    assert checks.main([]) == 0
    assert ran[-1][3:] == [*checks.side_by_side(), *checks.END_HANGING, "-m", "not long"]
    assert checks.main(["--all"]) == 0
    assert ran[-1][3:] == checks.side_by_side()
    assert len(compiled) == 2
