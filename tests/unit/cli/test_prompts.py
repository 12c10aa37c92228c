"""Confirmation on a terminal, usage errors elsewhere, and values from the command line."""

import argparse
import io
import sys
from typing import Any

import pytest

from pubsub_lib.cli import prompts
from pubsub_lib.command.exit_codes import Declined
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import UsageError
from tests.unit.cli.world import World, fill

LIMITS = Limits(max_value_bytes=1000)


class Terminal(io.StringIO):
    """An input that is a terminal."""

    def isatty(self) -> bool:
        return True


def confirm(*, yes: bool = False) -> None:
    prompts.confirm(argparse.Namespace(yes=yes), "delete all")


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_confirm_accepts_yes(answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    confirm()
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "Delete all? [y/N] ")


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yep\n"])
def test_confirm_declines_other_answers(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with pytest.raises(Declined, match="nothing was changed"):
        confirm()


def test_confirmation_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match=r"cannot ask whether to delete all.*--yes"):
        confirm()
    confirm(yes=True)


@pytest.mark.parametrize(("text", "value"), [("1", 1), ('"ö"', "ö"), ('{"a": [null]}', {"a": [None]})])
def test_values(text: str, value: Any) -> None:
    assert prompts.value(text, LIMITS) == value


def test_a_value_on_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO('{"a": "ö"}'.encode())))
    assert prompts.value("-", LIMITS) == {"a": "ö"}


@pytest.mark.parametrize("command", [("add", "t", "k", "-"), ("update", "t", "k", "-"), ("send", "--value", "-")])
def test_size_of_the_standard_input_is_limited(
    command: tuple[str, ...], small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(io.RawIOBase):
        """An endless input that fails the test when a reader reads too much."""

        read_so_far = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.read_so_far += len(buffer)
            assert self.read_so_far < 1 << 23, "the input is read without a limit"
            buffer[:] = b" " * len(buffer)
            return len(buffer)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless())))
    small.run(*command).failed(2, f"more than {8 * 262144 + 65536} bytes; give one value, or use pubsub-db load")


def test_value_padded_with_spaces_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" " * (prompts.longest(LIMITS) - 1) + b"7")))
    assert prompts.value("-", LIMITS) == 7


@pytest.mark.parametrize("text", ["host-7", "", "{'a': 1}", "\udcff", '"caf\udce9"'])
def test_value_that_is_not_json_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not valid JSON .*quotes"):
        prompts.value(text, LIMITS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", ""), ("ls", "t", "--topic", ""), ("dump", "--table", ""), ("dump", "--topic", ""), ("history", "", "k"),
        ("diff", "0", "0", "--topic", ""), ("verify", ""), ("log", "--topic", ""), ("log", "--follow", "--topic", ""),
        ("export", "-", "--table", ""), ("export", "-", "--topic", ""), ("clean", "--yes", "--topic", ""),
    ],
)  # fmt: skip
def test_invalid_names_are_rejected(arguments: tuple[str, ...], small: World) -> None:
    small.run(*arguments).failed(2, "is empty; give at least one character")


def test_export_of_an_unknown_table_warns(small: World) -> None:
    with small.open() as store:
        fill(store)
    output = small.run("export", "-", "--table", "lprot")
    assert (output.code, output.out) == (0, "")
    assert "there are no such objects; see pubsub-db tables" in output.err
    assert "no such objects" not in small.run("export", "-", "--table", "lport").err
