"""The pages of ``--help``: the list of commands without their modules, and the pager of a terminal."""

import contextlib
import os
import pty
import re
from pathlib import Path

import pytest

from pubsub_lib.cli.commands import COMMANDS, OF_PROGRAM
from tests.unit.cli.world import World, imported, start

HEAVY = {
    "alembic", "msgspec", "oslo_config", "prettytable", "rich", "sqlalchemy", "tenacity", "xxhash", "yaml",
    "pubsub_lib.audit", "pubsub_lib.cli.completion", "pubsub_lib.cli.output", "pubsub_lib.config", "pubsub_lib.core",
    "pubsub_lib.journal", "pubsub_lib.publisher", "pubsub_lib.replica", "pubsub_lib.settings", "pubsub_lib.store",
}  # fmt: skip
"""What the list of the commands does not need."""


def test_help_imports_no_command_and_no_package_that_it_does_not_need() -> None:
    shown, modules = imported("--help")
    assert "Commands:" in shown
    assert modules & HEAVY == set()
    assert {each for each in modules if each.startswith("pubsub_lib.cli.commands.")} == set()
    assert "cliff.app" in modules  # the modules are seen at all


def test_help_lists_every_command_with_its_sentence(small: World) -> None:
    output = small.run("--help")
    assert output.code == 0
    for name, (_, sentence) in {**COMMANDS, **OF_PROGRAM}.items():
        assert any(
            line.split("  ")[1:2] == [name] and line.endswith(f"  {sentence}") for line in output.out.split("\n")
        )
    assert "\x1b" not in output.out
    assert small.run("help").out == output.out


@pytest.mark.parametrize("arguments", [("--help",), ("ls", "--help"), ("help", "help")])
def test_help_on_a_terminal_goes_through_the_pager(
    arguments: tuple[str, ...], small: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = small.run(*arguments).out
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged; exec cat\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    process = start(*arguments, stdout=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert (process.communicate()[1], process.returncode) == ("", 0)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "\x1b[" in shown.decode()
    assert text.startswith("paged\r\nusage: pubsub-db")
    assert text.split()[1:] == plain.split()
