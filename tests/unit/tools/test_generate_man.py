"""The manual pages: each option is in them, they are up to date, and groff accepts them."""

import argparse
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import generate_man
import pytest

from pubsub_lib.audit.report.summary import BITS
from pubsub_lib.cli.commands import COMMANDS
from pubsub_lib.cli.completion import arguments_of
from pubsub_lib.command import exit_codes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a  b\n c", "a b c"),
        (r"a\b", r"a\eb"),
        ("--topic", r"\-\-topic"),
        (".TH", r"\&.TH"),
        ("'s", r"\&'s"),
        ("TOPIC,…", r"TOPIC,\[u2026]"),
    ],
)
def test_text_is_escaped(text: str, expected: str) -> None:
    assert generate_man.escaped(text) == expected


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"action": "store_true"}, ""),
        ({"metavar": "FILE"}, "FILE"),
        ({}, "X"),
        ({"choices": ("a", "b")}, "a|b"),
        ({"nargs": "*", "metavar": "TOPIC"}, "[TOPIC ...]"),
        ({"nargs": "+", "metavar": "TOPIC"}, "TOPIC ..."),
    ],
)
def test_value_of_an_option(keywords: dict[str, object], expected: str) -> None:
    action = argparse.ArgumentParser().add_argument("-x", **keywords)  # type: ignore[arg-type]
    assert generate_man.value_of(action) == expected


def test_pages_are_up_to_date() -> None:
    assert generate_man.main(["--check"]) == 0


def test_pages_do_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("COLUMNS", "40")
    assert generate_man.main(["--check"]) == 0


@pytest.mark.parametrize("page", [generate_man.of_audit, generate_man.of_cli, generate_man.of_service])
def test_each_option_and_command_is_on_its_page(page: Callable[[], generate_man.Page]) -> None:
    made = page()
    text = (generate_man.FOLDER / made.file).read_text()
    for part in (made.program, *made.commands):
        for _, action in arguments_of(part.parser):
            for name in action.option_strings:
                assert rf"\fB{generate_man.escaped(name)}\fR" in text, (part.name, name)
    assert text.count("\n.SS ") == len(made.commands)


def test_page_of_pubsub_db_has_every_command() -> None:
    assert {each.name for each in generate_man.of_cli().commands} == {*COMMANDS, "complete", "help"}


def test_page_of_pubsub_db_has_an_example_of_every_command() -> None:
    text = (generate_man.FOLDER / "pubsub-db.1").read_text()
    assert text.count("\n.PP\nExample: pubsub\\-db ") == len(COMMANDS) + 2


def test_page_of_the_audit_has_every_bit_and_code() -> None:
    for code in (*BITS, exit_codes.AUDIT_USAGE, exit_codes.INTERNAL_ERROR, exit_codes.CLOSED_PIPE):
        assert f" {code} " in generate_man.OF_AUDIT


@pytest.mark.parametrize("path", sorted(generate_man.FOLDER.iterdir()), ids=lambda path: path.name)
def test_groff_accepts_the_page(path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-man", "-ww", "-Tutf8", "-z", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
