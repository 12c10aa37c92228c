"""Single keys of a terminal, on a pseudo-terminal."""

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
    """(the side of the user, the side of the program)."""
    outside, inside = pty.openpty()
    yield outside, inside
    os.close(inside)
    os.close(outside)


@contextmanager
def standard_streams_on(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Only for the block: pytest uses its own streams at the beginning and end of the test.
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin", Stream(descriptor))
        patch.setattr("sys.stdout", Stream(descriptor))
        yield


def echoes(attributes: list[Any]) -> bool:
    return bool(attributes[3] & termios.ECHO)


def test_keys_are_read_one_by_one_without_return(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = terminal
    before = termios.tcgetattr(inside)
    with standard_streams_on(inside, monkeypatch), keys() as pressed:
        assert not echoes(termios.tcgetattr(inside))
        assert pressed(0.0) == ""
        os.write(outside, b"q")
        assert pressed(5.0) == "q"
    assert termios.tcgetattr(inside) == before


def test_terminal_is_restored_when_the_block_raises(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    before = termios.tcgetattr(terminal[1])
    with pytest.raises(KeyboardInterrupt), standard_streams_on(terminal[1], monkeypatch), keys():
        raise KeyboardInterrupt
    assert termios.tcgetattr(terminal[1]) == before
    assert echoes(before)


def test_keys_need_a_terminal() -> None:
    with pytest.raises(ConfigError, match="needs a terminal"), keys():
        pass
