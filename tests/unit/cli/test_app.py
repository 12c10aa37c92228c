"""Behaviour of every command: global options, help, and one sentence and an exit code for each error."""

import logging
import os
import re
import subprocess
from pathlib import Path

import pytest

import pubsub_lib
from pubsub_lib.cli.commands import COMMANDS, tables
from pubsub_lib.command import exit_codes
from tests.unit.cli.world import ROOT, World, start


def test_help_lists_every_command(small: World) -> None:
    output = small.run("--help")
    assert output.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in output.out


def test_without_a_command_help_goes_to_stderr(small: World) -> None:
    output = small.run()
    assert (output.code, output.out) == (2, "")
    assert "Commands:" in output.err


def test_an_unknown_command_gets_a_hint(small: World) -> None:
    small.run("tabels").failed(2, "there is no command 'tabels'; did you mean 'tables'?")
    small.run("xyzzy").failed(2, "see pubsub-db --help")
    small.run("help", "tabels").failed(2, "there is no command 'tabels'; did you mean 'tables'?")
    small.run("tabels", "--help").failed(2, "there is no command 'tabels'; did you mean 'tables'?")


def test_unknown_option_is_a_usage_error(small: World) -> None:
    output = small.run("tables", "--colour")
    assert (output.code, output.out) == (2, "")
    assert "unrecognized arguments: --colour" in output.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nonsense", "ls", "lport"), "--nonsense is no option of pubsub-db itself; the options of a command follow"),
        (("-f", "json", "tables"), "-f is no option of pubsub-db itself"),
        (("--databse=postgresql://u:secret@h/n", "tables"), "--databse is no option of pubsub-db itself; did you mean"),
        (("--", "tables"), "-- is no option of pubsub-db itself"),
        (("--nonsense",), "--nonsense is no option of pubsub-db itself"),
    ],
)
def test_unknown_option_before_the_command_is_a_usage_error(
    arguments: tuple[str, ...], words: str, small: World
) -> None:
    output = small.run(*arguments)
    output.failed(2, words)
    assert "secret" not in output.err


def test_the_version(small: World) -> None:
    assert small.run("--version").out == f"pubsub-db {pubsub_lib.__version__}\n"


def test_completion_knows_commands_and_options(small: World) -> None:
    output = small.run("complete")
    assert output.code == 0
    assert "_pubsub_db" in output.out
    assert "cmds_ls='-h --help" in output.out
    checked = subprocess.run(["bash", "-n"], input=output.out, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_internal_error_is_one_sentence_and_debug_shows_the_traceback(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(tables.Tables, "take_action", broken)
    small.run("tables").failed(70, "internal error (KeyError('x'))", "--debug")
    output = small.run("tables", "--debug")
    assert output.code == 70
    assert "Traceback (most recent call last)" in output.err


def test_debug_shows_the_traceback_of_an_error_too(small: World) -> None:
    output = small.run("get", "lport", "p9", "--debug")
    assert output.code == 1
    assert "Traceback" in output.err


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_interrupt_and_closed_pipe_end_without_output(
    raised: type[BaseException], code: int, small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise raised

    monkeypatch.setattr(tables.Tables, "take_action", ended)
    output = small.run("tables")
    assert (output.code, output.out, output.err) == (code, "", "")


def test_logging_of_the_process_is_restored(small: World) -> None:
    before = (logging.getLogger().level, list(logging.getLogger().handlers))
    small.run("tables", "-v")
    assert (logging.getLogger().level, logging.getLogger().handlers) == before


def test_closed_pipe_ends_the_command_without_error(small: World) -> None:
    with small.open() as store, store.transaction() as tx:
        for number in range(3000):  # more than a pipe holds
            tx.set("t", f"key {number:040}", number)
    process = small.process("ls", "t", "-f", "value")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("key 0")
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == exit_codes.CLOSED_PIPE


HELPS = (("--help",), ("help",), ("ls", "--help"), ("--version",))


@pytest.mark.parametrize("arguments", HELPS)
def test_help_into_a_closed_pipe_ends_without_error(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # without a buffer, argparse itself discards the error
    reader, writer = os.pipe()
    os.close(reader)
    process = start(*arguments, stdout=writer)
    os.close(writer)
    assert (process.communicate()[1], process.returncode) == ("", exit_codes.CLOSED_PIPE)


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize("arguments", [("tables", "-f", "json"), *HELPS])
def test_output_on_a_full_disk_is_an_error(
    arguments: tuple[str, ...], small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with Path("/dev/full").open("w") as full:
        process = small.process(*arguments, stdout=full)
        err = process.communicate()[1]
    assert process.returncode == exit_codes.FILE
    assert err == "pubsub-db: a file or the output cannot be used: [Errno 28] No space left on device\n"


def test_characters_outside_the_terminal_encoding_are_escaped(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with small.open() as store, store.transaction() as tx:
        tx.set("t", "schlüssel", "→")
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    process = small.process("dump", "-f", "value", encoding="latin-1")
    assert process.communicate() == ('t schlüssel default 1 "\\u2192"\n'.replace(" 1 ", f" {small.head} "), "")


def test_invalid_unicode_argument_is_rejected(small: World) -> None:
    process = small.process("add", "t", b"\xff".decode(errors="surrogateescape"), "1")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert "is not valid Unicode" in err
    assert err.count("\n") == 1


def test_exit_codes_are_documented_in_one_table() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert {int(each) for each in rows} == codes
    assert len(rows) == len(codes)
    help_text = start("--help").communicate()[0]
    for code in codes - {exit_codes.AUDIT_USAGE}:
        assert re.search(rf"\b{code}\s", help_text.partition("Exit codes")[2]), code
