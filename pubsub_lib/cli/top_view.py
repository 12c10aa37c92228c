"""The screen of ``top``: a :class:`~pubsub_lib.cli.top_model.View` as lines that fit a terminal of any size."""

from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from pubsub_lib.cli.formatting import cut, duration, padded, visible
from pubsub_lib.cli.top_model import View

_FRAME: Final = 7
"""Number of lines beside the rows: two above, two with column names, one for an error, one between, one at the end."""

_NUMBERS: Final = 50
"""Number of characters of the columns of numbers, with the gaps between them."""


class TopView:
    """Rich draws it in the current size of the terminal. Immutable."""

    def __init__(self, view: View, title: str, clock: str) -> None:
        """``title``: the database and the driver; ``clock``: the time of day."""
        self._view = view
        self._title = title
        self._clock = clock

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        lines = self._lines(console, options.update(width=width, height=None), height)
        for number, line in enumerate(lines[:height]):
            if number:
                yield Segment.line()
            yield from line

    def _lines(self, console: Console, options: ConsoleOptions, height: int) -> list[list[Segment]]:
        view, width = self._view, options.max_width
        rows = max(2, height - _FRAME)
        # Services are few; topics get the other rows, and at least half.
        services = min(max(1, len(view.services)), max(1, rows // 2))
        topics = rows - services
        parts: list[RenderableType] = [
            Text(_ends(f"pubsub-db top  {self._title}", self._clock, width), style="reverse"),
            Text(cut(_summary(view), width)),
            Text(cut(f"the store cannot be read: {view.error}" if view.error else "", width), style="bold red"),
            self._services(services, width),
            Text(""),
            self._topics(topics, width),
        ]
        lines: list[list[Segment]] = []
        for part in parts:
            lines += console.render_lines(part, options, pad=True, new_lines=False)
        blank = [Segment(" " * width)]
        lines = lines[: height - 1] + [blank] * (height - 1 - len(lines))
        return [*lines, *console.render_lines(Text(cut(self._foot(services, topics), width), style="dim"), options)]

    def _services(self, maximum: int, width: int) -> Table:
        shown = self._view.services[:maximum]
        names = max((cell_len(each.service) + cell_len(each.address) for each in shown), default=0)
        table = _table(
            min(width, 2 * max(names, 20) + _NUMBERS),
            ("service", 2, False), ("address", 3, False), ("lease", 0, True), ("msg/s", 0, True),
            ("latency", 0, True), ("lag", 0, True), ("holes", 0, True),
        )  # fmt: skip
        for each in shown:
            lease = "" if each.lease_left is None else duration(each.lease_left) if each.lease_left > 0 else "ended"
            table.add_row(
                _cell(each.service), _cell(each.address), lease, f"{each.messages:.1f}",
                "" if each.latency is None else duration(each.latency), "" if each.lag is None else str(each.lag),
                Text(str(each.holes), style="bold red" if each.holes else ""),
            )  # fmt: skip
        if not self._view.services:
            table.add_row("none" if self._view.read else "not read yet")
        return table

    def _topics(self, maximum: int, width: int) -> Table:
        shown = self._view.topics[:maximum]
        nothing = "nothing was ever written" + " to these topics" * self._view.some
        nothing = nothing if self._view.read else "not read yet"
        names = [each.topic for each in shown] or [nothing]
        table = _table(
            min(width, max([20, *map(cell_len, names)]) + _NUMBERS),
            ("topic", 1, False), ("objects", 0, True), ("head", 0, True), ("chg/s", 0, True), ("lag", 0, True),
            ("holes", 0, True),
        )  # fmt: skip
        for each in shown:
            late = each.lag >= 1  # a change that was just written may still be under way
            table.add_row(
                _cell(each.topic), str(each.objects), str(each.head), f"{each.changes:.1f}",
                Text(duration(each.lag) if late else "0", style="bold red" if late else ""),
                Text(str(each.holes), style="bold red" if each.holes else ""),
            )  # fmt: skip
        if not self._view.topics:
            table.add_row(nothing)
        return table

    def _foot(self, services: int, topics: int) -> str:
        view = self._view
        words = ["q ends"]
        if len(view.services) > services:
            words.append(f"{len(view.services) - services} more services")
        if len(view.topics) > topics:
            words.append(f"{len(view.topics) - topics} more topics; shown are those that lag, then the busiest")
        return " · ".join(words)


def _summary(view: View) -> str:
    return (
        f"head {view.head}   written {view.written:.1f}/s   received {view.received:.1f}/s   holes {view.holes}   "
        f"topics {len(view.topics)}"
    )


def _ends(left: str, right: str, width: int) -> str:
    """Two texts at the two ends of a line; the left text is cut when necessary."""
    room = max(0, width - cell_len(right) - 1)
    return cut(padded(cut(left, room), room) + " " + right, width)


def _cell(text: str) -> Text:
    # Not as markup, because a topic may contain brackets.
    return Text(visible(text))


def _table(width: int, *columns: tuple[str, int, bool]) -> Table:
    """A table of these columns: (name, share of the free width or 0, whether aligned to the right)."""
    table = Table(box=None, width=width, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", highlight=False)
    for name, ratio, right in columns:
        table.add_column(
            name, ratio=ratio or None, justify="right" if right else "left", no_wrap=True, overflow="ellipsis",
            min_width=None if ratio else max(5, len(name)),
        )  # fmt: skip
    return table
