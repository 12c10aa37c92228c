"""Single keys of a terminal, on a pseudo-terminal of the test's own."""

import os
import pty
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pubsub_lib.cli.keyboard import keys
from pubsub_lib.errors import ConfigError


class Stream:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(the side of who types, the side of the program)."""
    outside, inside = pty.openpty()
    yield outside, inside
    os.close(inside)
    os.close(outside)


@contextmanager
def standing_on(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Only for the block: pytest has streams of its own at the test's begin and end.
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin", Stream(descriptor))
        patch.setattr("sys.stdout", Stream(descriptor))
        yield


def echoes(attributes: list[Any]) -> bool:
    return bool(attributes[3] & termios.ECHO)


def test_keys_come_one_by_one_without_return(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = terminal
    before = termios.tcgetattr(inside)
    with standing_on(inside, monkeypatch), keys() as pressed:
        assert not echoes(termios.tcgetattr(inside))
        assert pressed(0.0) == ""
        os.write(outside, b"q")
        assert pressed(5.0) == "q"
    assert termios.tcgetattr(inside) == before


def test_the_terminal_is_as_before_when_the_block_raises(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = termios.tcgetattr(terminal[1])
    with pytest.raises(KeyboardInterrupt), standing_on(terminal[1], monkeypatch), keys():
        raise KeyboardInterrupt
    assert termios.tcgetattr(terminal[1]) == before
    assert echoes(before)


def test_without_a_terminal_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a terminal"), keys():
        pass
