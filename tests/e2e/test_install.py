"""A newcomer follows docs/install.md with the wheel alone: the commands of the page run in an empty environment.

pip installs the distributions that the wheel's metadata require, and no others, from a folder of wheels, because tests
have no registry. Paths of the system are replaced by those of a scratch folder.
"""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from _processes import free_ports, poll
from packaging.utils import canonicalize_name

import pubsub_lib
from pubsub_lib.command.exit_codes import OK
from tests.e2e.repl import Repl, type_tutorial
from tests.e2e.service_host import LONG, ROOT
from tests.e2e.wheelhouse import pack, required_by, without_requirement
from tests.unit.test_project import copy_project

PAGE: Final = (ROOT / "docs" / "install.md").read_text()
WHEEL: Final = f"pubsub_lib-{pubsub_lib.__version__}-py3-none-any.whl"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXTRAS: Final = re.compile(r"-py3-none-any\.whl\[([\w,]+)\]")
INSTALLED: Final = 900.0
"""Seconds for pip and a new environment. On a machine with much other work they took more than 120."""
OF_VENV: Final = {"pip", "setuptools", "wheel"}
"""What ``python3 -m venv`` itself may install."""
AS_ROOT: Final = ("useradd ", "systemctl ")
"""Commands that the tests replace: they change the machine."""


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of a section in this language."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return [text for found, text in BLOCK.findall(section) if found == language]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that a newcomer has."""
    folder = tmp_path_factory.mktemp("wheel")
    source = copy_project(tmp_path_factory.mktemp("source") / "project")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / WHEEL


@pytest.fixture
def folder(wheel: Path, tmp_path: Path) -> Path:
    """A folder that holds the wheel and nothing else."""
    shutil.copy(wheel, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def index(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that replaces a registry: what the wheel requires, with all extras of the page's commands."""
    folder = tmp_path_factory.mktemp("index")
    extras = {extra for group in EXTRAS.findall(PAGE) for extra in group.split(",")}
    assert "zmq" in extras
    for each in required_by(wheel, extras).values():
        pack(each, folder)
    return folder


def environment(folder: Path, index: Path) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "PATH": f"{folder}/bin:{sysconfig.get_path('scripts', vars={'base': sys.base_prefix})}:/usr/bin:/bin",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_COMPILE": "1",
        "PIP_NO_INDEX": "1",
    }


def run(script: str, folder: Path, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALLED,
    )
    assert done.returncode == OK, f"{script}\n{done.stdout}{done.stderr}"
    return done


def has_only(folder: Path, extras: tuple[str, ...], variables: Mapping[str, str]) -> bool:
    """Whether the environment of the page has only the wheel and what this requires, besides pip and its parts."""
    lines = run("pubsub/bin/pip list --format=freeze", folder, variables).stdout.splitlines()
    there = {canonicalize_name(line.partition("==")[0]) for line in lines}
    return there - OF_VENV == {"pubsub-lib", *required_by(folder / WHEEL, extras)} - OF_VENV


@pytest.mark.long
def test_library_is_installed_from_the_wheel_and_follows_the_tutorial(folder: Path, index: Path) -> None:
    """The wheel requires all that the tutorial needs: the environment has nothing else."""
    first, second = blocks("The library", "bash")
    variables = environment(folder, index)
    assert run(first, folder, variables).stdout.splitlines()[-1] == pubsub_lib.__version__
    assert has_only(folder, (), variables)
    where = run("pubsub/bin/python -c 'import pubsub_lib; print(pubsub_lib.__file__)'", folder, variables).stdout
    assert where.startswith(f"{folder}/pubsub/lib/")
    with Repl(folder / "pubsub/bin/python", folder, variables) as repl:
        type_tutorial(repl)
    run(second, folder, variables)
    assert has_only(folder, ("postgresql", "zmq"), variables)


@pytest.mark.long
def test_wheel_that_does_not_require_what_it_imports_is_detected(wheel: Path, tmp_path: Path, index: Path) -> None:
    without_requirement(wheel, "xxhash", tmp_path)
    first, _ = blocks("The library", "bash")
    variables = environment(tmp_path, index)
    run(first, tmp_path, variables)
    missing = pytest.raises(AssertionError, match="ModuleNotFoundError: No module named 'xxhash'")
    with Repl(tmp_path / "pubsub/bin/python", tmp_path, variables) as repl, missing:
        type_tutorial(repl)


def adapted(script: str, folder: Path) -> str:
    """The commands of the page with paths below this folder, without those that change the machine."""
    lines = [line for line in script.splitlines() if not line.startswith((*AS_ROOT, "curl ", "runuser "))]
    text = "\n".join(lines)
    for path in ("/opt", "/etc", "/usr/local/bin"):
        text = re.sub(rf"(?<![\w/]){path}/", f"{folder}{path.removeprefix('/usr/local')}/", text)
    return text


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=LONG) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, ConnectionError):
        return False


@pytest.mark.long
def test_service_is_installed_checked_started_and_receives_a_change(folder: Path, index: Path) -> None:
    setting_up, starting, writing = blocks("A host with writers", "bash")
    for name in ("bin", "etc/systemd/system", "opt", "state"):
        (folder / name).mkdir(parents=True)
    variables = environment(folder, index)
    run(adapted(setting_up, folder), folder, variables)
    config = folder / "etc" / "pubsub_lib" / "pubsub_lib.conf"
    for written, name in (
        (Path(f"{config}.sample"), "pubsub_lib.conf.sample"),
        (folder / "etc/systemd/system/publisher-service.service", "publisher-service.service"),
    ):
        assert written.read_text() == (ROOT / "etc" / name).read_text()
    port, metrics = free_ports(2)
    (ini,) = blocks("A host with writers", "ini")
    config.write_text(
        ini.replace("/var/lib/pubsub_lib", f"{folder}/state")
        + f"publisher_port = {port}\npublisher_multiproc_socket = {folder}/state/workers/socket\n"
        + f"[publisher_service]\nmetrics_port = {metrics}\n"
    )
    given = f" --config-file {config}"
    assert starting.splitlines()[0] == "publisher-service --check"
    assert (
        "the configuration is good: service 'host-1'"
        in run(f"publisher-service --check{given}", folder, variables).stdout
    )
    (line,) = writing.splitlines()
    prefix = "runuser -u pubsub -- pubsub-db "
    assert line.startswith(prefix)
    command = ["publisher-service", *given.split()]
    program = shutil.which(command[0], path=variables["PATH"])
    assert program is not None
    with subprocess.Popen(
        [program, *command[1:]], cwd=folder, env=variables, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            assert poll(lambda: ready(metrics), LONG)
            done = run(f"pubsub-db{given} {line.removeprefix(prefix)}", folder, variables)
        finally:
            service.terminate()
            _, log = service.communicate(timeout=LONG)
    assert service.returncode == OK, log
    assert done.stderr == ""
    assert re.search(r"version +\| 1 ", done.stdout), done.stdout


def test_page_lists_every_extra_for_users() -> None:
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert listed == known - {"docs", "test"}


def test_page_names_this_version_and_existing_files() -> None:
    assert set(re.findall(r"pubsub_lib-[\d.]+-py3-none-any\.whl", PAGE)) == {WHEEL}
    assert f"The last command prints `{pubsub_lib.__version__}`." in PAGE
    named = set(re.findall(r"(?<![/\w])etc/[\w./-]+\w", PAGE))
    assert len(named) >= 4
    assert [each for each in named if not (ROOT / each).is_file()] == []


def test_commands_in_containers_are_commands_of_the_project() -> None:
    """Those behind ``exec publisher`` are parsed by the program that they name."""
    script, reload = blocks("Containers", "bash")
    lines = [shlex.split(line) for line in script.splitlines()]
    inside = [line[line.index("publisher") + 1 :] for line in lines if "exec" in line]
    assert [line[:2] for line in inside] == [["pubsub-db", "--config-file"]] * 2
    assert [line[3:6] for line in inside] == [["add", "lport", "p1"], ["add", "lroute", "10.0.0.0/24"]]
    services = {line[-1] for line in lines if "logs" in line}
    assert services == {"controller-1"}
    assert shlex.split(reload)[-3:] == ["python", "-c", f"import os; os.kill(1, {int(signal.SIGHUP)})"]
