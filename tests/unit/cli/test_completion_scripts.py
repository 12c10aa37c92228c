"""The completion scripts in real shells: bash, and fish and zsh, which ``tools/test`` installs."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.cli.commands import COMMANDS
from pubsub_lib.cli.completion import Command, Option, commands_of, options_of
from pubsub_lib.cli.completion_scripts import SCRIPTS
from tests.conftest import IN_CI
from tests.unit.cli.world import ROOT, World, fill

Completes = Callable[..., set[str]]
"""From the words of a command line, the last one incomplete, to what the shell proposes."""

LONG = 60.0
OF_PROGRAM = [Option(["--database"], "nothing", "the database"), Option(["-q", "--quiet"], "", "less output")]
TOOLS = [
    Command("clients add", "Add a client", [Option(["--topics"], "nothing", "")], ["nothing"], False),
    Command("clients list", "List the clients", [], [], False),
    Command("help", "", [], ["commands"], True),
    Command("load", "Load a file", [Option(["-f", "--format"], "csv|json", "the output format")], ["files"], False),
    Command("ls", "It's a list", [Option(["--topic"], "topics", "only this topic")], ["tables"], False),
    Command("rm", "Delete", [], ["tables", "nothing"], True),
    Command("top", "Show", [], ["topics"], True),
]
DRIVERS = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pubsub_db; '
    'printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'autoload -U compinit; compinit -D; source "$1"; shift; emulate sh; setopt kshglob noshglob braceexpand; '
    'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pubsub_db; printf "%s\\n" "${COMPREPLY[@]}"',
    "fish": 'source $argv[1]; complete -C (string join " " -- (string escape -- $argv[2..-2]) $argv[-1]) | cut -f 1',
}


def in_shell(shell: str, script: Path, folder: Path, *words: str) -> set[str]:
    """What the shell proposes; ``pubsub-db`` is the program in ``folder``."""
    command = [shell, "-c", DRIVERS[shell], *([] if shell == "fish" else [shell]), str(script), *words]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=LONG
    )
    assert done.stderr == ""
    return {each.strip() for each in done.stdout.splitlines() if each.strip()}


def program(folder: Path, text: str) -> None:
    """Write the command ``pubsub-db``."""
    path = folder / "pubsub-db"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture(params=["bash", "fish", "zsh"])
def completes(request: pytest.FixtureRequest, tmp_path: Path) -> Completes:
    """A shell with the script, in a folder with one file, and a command that prints its arguments as names."""
    shell: str = request.param
    if shutil.which(shell) is None:
        (pytest.fail if IN_CI else pytest.skip)(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell](OF_PROGRAM, TOOLS))
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "lines").write_text("")
    program(folder, 'echo "$@" > called; echo "name-of-$2"; echo "name-of-$4"')
    return lambda *words: in_shell(shell, script, folder, "pubsub-db", *words)


def test_commands_are_proposed(completes: Completes) -> None:
    assert completes("") >= {"clients", "help", "load", "ls", "rm", "top"}
    assert completes("l") == {"load", "ls"}
    assert completes("-q", "l") == {"load", "ls"}
    assert completes("clients", "") == {"add", "list"}
    assert completes("help", "l") == {"load", "ls"}


@pytest.mark.quick_variants(1)
def test_options_are_proposed(completes: Completes) -> None:
    assert completes("ls", "--to") == {"--topic"}
    assert completes("clients", "add", "--t") == {"--topics"}
    assert completes("ls", "--dat") == {"--database"}
    assert completes("rm", "--to") == set()


@pytest.mark.quick_variants(1)
def test_values_of_options_are_proposed(completes: Completes) -> None:
    assert completes("load", "--format", "") == {"csv", "json"}
    assert completes("load", "-f", "c") == {"csv"}
    assert "name-of-topics" in completes("ls", "--topic", "name")
    assert completes("--database", "l") == set()


@pytest.mark.quick_variants(1)
def test_tables_and_topics_are_read_from_the_named_database(completes: Completes, tmp_path: Path) -> None:
    assert "name-of-tables" in completes("ls", "")
    assert "name-of-tables" in completes("rm", "name-of-t")
    assert "name-of-topics" in completes("top", "one", "two", "")
    assert completes("ls", "name-of-tables", "") <= {"lines", "called", "pubsub-db"}  # fish proposes files
    completes("--database", "sqlite:///net.db", "ls", "")
    called = (tmp_path / "empty" / "called").read_text()
    assert called == "--quiet --database sqlite:///net.db tables --format value --column table\n"


def test_files_are_proposed(completes: Completes) -> None:
    assert "lines" in completes("load", "li")


def test_words_that_bash_divides_are_joined(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(SCRIPTS["bash"](OF_PROGRAM, TOOLS))
    program(tmp_path, 'echo "$@" > called; echo "edge 1"')

    def complete(*words: str) -> set[str]:
        return in_shell("bash", tmp_path / "script", tmp_path, "pubsub-db", *words)

    assert complete("load", "--format", "=", "c") == {"csv"}
    assert complete("load", "--format", "=") == {"csv", "json"}
    assert complete("--database", "sqlite", ":", "///net.db", "ls", "") == {r"edge\ 1"}
    assert "--database sqlite:///net.db tables" in (tmp_path / "called").read_text()
    assert complete("--database", "=", "sqlite", ":", "///net.db", "ls", "") == {r"edge\ 1"}
    assert "--database=sqlite:///net.db tables" in (tmp_path / "called").read_text()


def test_words_of_the_user_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(SCRIPTS["bash"](OF_PROGRAM, TOOLS))
    program(tmp_path, "exit 1")
    for word in ("$(touch ran)", "`touch ran`", "x;touch ran", "x}$(touch ran)"):
        in_shell("bash", tmp_path / "script", tmp_path, "pubsub-db", word, "")
        in_shell("bash", tmp_path / "script", tmp_path, "pubsub-db", "ls", "--topic", word, word, "")
    assert not (tmp_path / "ran").exists()


def test_bash_completes_the_tables_of_a_database(small: World, tmp_path: Path) -> None:
    with small.open() as store:
        fill(store)
    app = PubsubDb()
    (tmp_path / "script").write_text(
        SCRIPTS["bash"](options_of(app), commands_of(app)).replace("timeout 5", "timeout 60")
    )
    program(tmp_path, f'PYTHONPATH={ROOT}:{ROOT}/drivers exec {sys.executable} -m pubsub_lib.cli "$@"')
    words = ("pubsub-db", "--config-file", str(small.config), "ls", "s")
    assert in_shell("bash", tmp_path / "script", tmp_path, *words) == {"switch"}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_script_has_every_command_and_option(shell: str) -> None:
    commands = commands_of(PubsubDb())
    assert {each.name for each in commands} == {*COMMANDS, "complete", "help"}
    script = SCRIPTS[shell](OF_PROGRAM, commands)
    for each in commands:
        for name in (name for option in each.options for name in option.names):
            if shell == "fish":
                flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                assert re.search(rf"'__pubsub_db_at any {each.name}' .*{flag}\b", script), (each.name, name)
            else:
                line = re.search(rf"^  local cmds_{re.sub('[- ]', '_', each.name)}='(.*)'$", script, re.MULTILINE)
                assert line is not None
                assert name in line[1].split()


def test_quotes_in_descriptions_are_escaped() -> None:
    assert r"-d 'It\'s a list'" in SCRIPTS["fish"](OF_PROGRAM, TOOLS)
