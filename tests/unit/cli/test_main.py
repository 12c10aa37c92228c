"""Errors before other modules can be imported, and the end of the process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.cli.main import main
from tests.unit.cli.world import ROOT, World, fill


def test_missing_extra_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.startswith(("cliff", "pubsub_lib.cli.app"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cliff", None)
    assert main(["tables"]) == 2
    assert capsys.readouterr().err.endswith("is not installed; run: pip install pubsub-lib[cli]\n")


def test_sigterm_handler_is_restored(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    main(["--version"])
    assert signal.getsignal(signal.SIGTERM) is before


def closed(world: World, redirection: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, started by a shell that closes one of its streams."""
    command = [sys.executable, "-m", "pubsub_lib.cli", "--config-file", str(world.config), *arguments]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}, cwd=world.config.parent,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.quick_variants(3)
@pytest.mark.parametrize(
    ("redirection", "arguments", "code", "word"),
    [
        (">&-", ("status",), 5, "the output cannot be used"),
        (">&-", ("export", "-"), 5, "cannot be"),
        (">&-", ("export", "out.jsonl", "--yes"), 0, "objects were written"),
        ("2>&-", ("status", "-f", "json"), 0, ""),
        ("2>&-", ("get", "no", "such"), 1, ""),
        (">&- 2>&-", ("status",), 5, ""),
        ("<&-", ("rm", "t", "x"), 2, "the input is not a terminal"),
        ("<&-", ("load", "-"), 5, "the standard input cannot be read"),
        ("<&-", ("add", "t", "x", "-"), 5, "cannot be used"),
        ("<&-", ("top",), 2, "this needs a terminal"),
    ],
)
def test_standard_streams_closed_at_the_start(
    redirection: str, arguments: tuple[str, ...], code: int, word: str, small: World
) -> None:
    with small.open() as store:
        fill(store)
    output = closed(small, redirection, *arguments)
    assert output.returncode == code, output
    assert word in output.stderr
    assert all(line.startswith("pubsub-db: ") for line in output.stderr.splitlines()), output.stderr
    assert bool(output.stderr) is bool(word)
    if arguments[:2] == ("export", "out.jsonl"):
        # The file has another descriptor than 1, so that no output is written into the file.
        lines = (small.config.parent / "out.jsonl").read_text().splitlines()
        assert len([json.loads(line) for line in lines]) == 3
    if arguments == ("status", "-f", "json"):
        assert json.loads(output.stdout)["head"] == small.head


def test_error_before_the_command_is_found_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: PubsubDb) -> None:
        raise RuntimeError("no metadata")

    monkeypatch.setattr(PubsubDb, "__init__", broken)
    assert main(["tables"]) == 70
    assert capsys.readouterr().err == "pubsub-db: internal error (RuntimeError('no metadata'))\n"


@contextmanager
def in_reset(raised: signal.Signals | Exception) -> Iterator[None]:
    """Inside the block, each reset of a pooled connection gets this signal, or fails with this error."""

    def reset(*_: Any) -> None:
        if isinstance(raised, Exception):
            raise raised
        signal.raise_signal(raised)

    event.listen(Pool, "reset", reset)
    try:
        yield
    finally:
        event.remove(Pool, "reset", reset)


@pytest.mark.usefixtures("signal_handlers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("options", [(), ("--debug",), ("-vv",)])
def test_signal_in_the_reset_of_a_connection_ends_without_output(
    number: signal.Signals, code: int, options: tuple[str, ...], small: World
) -> None:
    with in_reset(number):
        output = small.run(*options, "log", "--follow")
    assert (output.code, output.out, output.err) == (code, "", "")


def test_error_in_the_reset_of_a_connection_is_shown(small: World) -> None:
    with in_reset(RuntimeError("the server is gone")):
        output = small.run("--debug", "log")
    assert "pubsub-db: Exception during reset or similar\n" in output.err
    assert "RuntimeError: the server is gone" in output.err
