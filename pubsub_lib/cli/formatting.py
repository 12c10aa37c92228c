"""Times and numbers as people read them, and values that are text for people and structure for programs."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cliff.columns import FormattableColumn
from rich.cells import cell_len, set_cell_size

from pubsub_lib.core.model import Link


class Shown(FormattableColumn[Any]):
    """A value that table shows as ``text(value)``, and json and yaml as it is."""

    def __init__(self, value: Any, text: Callable[[Any], str]) -> None:
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        """For ``-f table``; what a terminal would obey is visible, but for the ends of its lines."""
        return "\n".join(visible(line) for line in self._text(self._value).split("\n"))


def moment(unix: float) -> str:
    """Unix seconds as ISO 8601 in UTC, whole seconds; "" for 0, which stands for "not known"."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if unix else ""


def duration(seconds: float) -> str:
    """Seconds in the unit that suits: ``7 ms``, ``3.2 s``, ``5 min``, ``2.0 h``, ``3.5 d``; the sign is kept."""
    size = abs(seconds)
    if size < 1:
        return f"{seconds * 1000:.0f} ms"
    if size < 120:
        return f"{seconds:.1f} s"
    if size < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if size < 172_800 else f"{seconds / 86_400:.1f} d"


def hexadecimal(digest: int) -> str:
    """A digest as its 16 digits."""
    return f"{digest:016x}"


def transaction(link: Link) -> int:
    """What people call a transaction by: the position of its last change."""
    return link.point.position


def visible(text: str) -> str:
    r"""A text without anything that a terminal would obey: control characters, ends of lines, and what turns the
    direction of writing are shown as ``\x1b``, ``\n``, ``\u202e``. All other text is as it was.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def visible_json(text: str) -> str:
    """The same for a text that is JSON, in JSON's own escapes: it still means what it meant."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def cut(text: str, width: int) -> str:
    """:func:`visible`, and at most so many cells of a terminal, ending in … when something was left out.

    A Chinese character takes two of them; where only one is left for it, a space stands there.
    """
    text = visible(text)
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"[:width]


def padded(text: str, width: int, *, right: bool = False) -> str:
    """As many spaces as the text has cells too few; those before it for ``right``."""
    space = " " * (width - cell_len(text))
    return space + text if right else text + space
