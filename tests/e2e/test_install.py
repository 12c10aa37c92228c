"""A newcomer follows docs/install.md with the wheel alone: the commands of the page run in an empty environment.

The distributions that the project needs come from this environment, because tests have no registry: pip installs the
wheel without them, and ``PYTHONPATH`` names them. Paths of the system are replaced by those of a scratch folder.
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

import pubsub_lib
from pubsub_lib.command.exit_codes import OK
from tests.e2e.service_host import LONG, ROOT
from tests.e2e.test_docs import samples
from tests.unit.test_project import copy_project

PAGE: Final = (ROOT / "docs" / "install.md").read_text()
WHEEL: Final = f"pubsub_lib-{pubsub_lib.__version__}-py3-none-any.whl"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def environment(folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "PATH": f"{folder}/bin:{sysconfig.get_path('scripts', vars={'base': sys.base_prefix})}:/usr/bin:/bin",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": sysconfig.get_path("purelib"),
    }


def run(script: str, folder: Path, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert done.returncode == OK, f"{script}\n{done.stdout}{done.stderr}"
    return done


def test_library_is_installed_from_the_wheel_and_follows_the_tutorial(folder: Path) -> None:
    first, second = blocks("The library", "bash")
    variables = environment(folder)
    assert run(first, folder, variables).stdout.splitlines()[-1] == pubsub_lib.__version__
    assert "Successfully installed" not in run(second, folder, variables).stderr
    where = run("pubsub/bin/python -c 'import pubsub_lib; print(pubsub_lib.__file__)'", folder, variables).stdout
    assert where.startswith(f"{folder}/pubsub/lib/")
    tutorial = folder / "tutorial.py"
    tutorial.write_text("\n".join(samples(ROOT / "docs" / "tutorial.md")))
    run(f"pubsub/bin/python -W error {tutorial}", folder, variables)


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


def test_service_is_installed_checked_started_and_receives_a_change(folder: Path) -> None:
    setting_up, starting, writing = blocks("A host with writers", "bash")
    for name in ("bin", "etc/systemd/system", "opt", "state"):
        (folder / name).mkdir(parents=True)
    variables = environment(folder)
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
