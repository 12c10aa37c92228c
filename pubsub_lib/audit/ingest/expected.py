"""Reads the file of ``--expect``: the participants that must have a journal (docs/audit.md, "Running it")."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from pubsub_lib.audit.settings import PARTICIPANTS
from pubsub_lib.errors import ConfigError

_COMMENT: Final = re.compile(r"(?:^|\s)#")  # a name may contain the letter


def read_expected(path: Path) -> list[tuple[str, str]]:
    """Side and name of each participant, in the order of the file. Raises ConfigError when the file cannot be read, has
    an invalid line, or has none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); name the file of --expect") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text in UTF-8 ({error.reason}); name the file of --expect") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        side, _, name = _COMMENT.split(line)[0].strip().partition(" ")
        if not side:
            continue
        if side not in PARTICIPANTS or not name:
            sides = ", ".join(PARTICIPANTS)
            raise ConfigError(f"{path}:{number} is not a side ({sides}) and a name; write 'replica r-1'")
        found.append((side, name.strip()))
    if not found:
        raise ConfigError(f"{path} names no participant; write one side and name a line, or omit --expect")
    return list(dict.fromkeys(found))


def absent(expected: Iterable[tuple[str, str]], there: Collection[tuple[str, str]]) -> list[str]:
    """The problem of each expected participant that is not ``there``: side and name of those with a record."""
    return [
        f"the {side} {name} is expected (--expect) and has no journal; add its journals, or correct the file"
        for side, name in expected
        if (side, name) not in there
    ]


class Expected:
    """The participants that must have a journal, over several looks at growing journals. Not thread-safe."""

    def __init__(self, expected: Sequence[tuple[str, str]]) -> None:
        self._expected = expected
        self.absent: list[str] = []
        """The problems of those that had no journal at the last look."""
        self._reported: set[str] = set()

    def look(self, there: Collection[tuple[str, str]]) -> None:
        """``there``: side and name of each participant with a record now."""
        self.absent = absent(self._expected, there)

    def unreported(self) -> list[str]:
        """The problems that no call has returned before."""
        new = [each for each in self.absent if each not in self._reported]
        self._reported.update(new)
        return new
