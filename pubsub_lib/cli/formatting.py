"""Times and numbers as text for people, and values that are text for people and structured for programs.

rich is imported only by what cuts texts to a width.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cliff.columns import FormattableColumn

from pubsub_lib.core.model import Link
from pubsub_lib.logs import printable


class Shown(FormattableColumn[Any]):
    """A value that ``-f table`` shows as ``text(value)``, and that json and yaml show unchanged."""

    def __init__(self, value: Any, text: Callable[[Any], str]) -> None:
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        """For ``-f table``: control characters are escaped, except the ends of lines."""
        return "\n".join(visible(line) for line in self._text(self.machine_readable()).split("\n"))


def moment(unix: float) -> str:
    """Unix seconds as ISO 8601 in UTC, whole seconds; "" for 0, which means "unknown"."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if unix else ""


def duration(seconds: float) -> str:
    """Seconds in a suitable unit: ``7 ms``, ``3.2 s``, ``5 min``, ``2.0 h``, ``3.5 d``; the sign is kept."""
    size = abs(seconds)
    if size < 1:
        return f"{seconds * 1000:.0f} ms"
    if size < 120:
        return f"{seconds:.1f} s"
    if size < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if size < 172_800 else f"{seconds / 86_400:.1f} d"


def hexadecimal(digest: int) -> str:
    """A digest as 16 hexadecimal digits."""
    return f"{digest:016x}"


def transaction(link: Link) -> int:
    """The number by which people name a transaction: the position of its last change."""
    return link.point.position


def visible(text: str) -> str:
    """A text that is safe for a terminal, as :func:`pubsub_lib.logs.printable`."""
    return printable(text)


def cut(text: str, width: int) -> str:
    """:func:`visible`, in at most ``width`` cells of a terminal; a text that was cut ends in ….

    A Chinese character takes two cells; when only one cell is left for it, a space takes its place.
    """
    from rich.cells import cell_len, set_cell_size

    text = visible(text)
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"[:width]


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text, filled with spaces to ``width`` cells; for ``right`` the spaces precede the text."""
    from rich.cells import cell_len

    space = " " * (width - cell_len(text))
    return space + text if right else text + space
