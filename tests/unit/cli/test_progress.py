"""The progress bar on a terminal; no output elsewhere."""

import io
import sys

import pytest

from pubsub_lib.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(*, quiet: bool = False) -> None:
    with Progress("loading", 1000, quiet=quiet) as progress:
        progress.show(500, "1,234 lines")


def test_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    drawn()
    for words in ("loading", "50%", "1,234 lines"):
        assert words in out.getvalue()


def test_no_progress_bar_without_a_terminal_or_when_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn()
    assert capsys.readouterr().err == ""
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    drawn(quiet=True)
    assert out.getvalue() == ""
