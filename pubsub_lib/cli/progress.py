"""A progress bar on the terminal during a long command; none when stderr is not a terminal."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Shows a bar on stderr if that is a terminal and ``quiet`` is not set. A context manager; one thread."""

    def __init__(self, doing: str, total: int | None, *, quiet: bool = False) -> None:
        """``total``: the final value of ``show``'s ``done``; None when it is unknown."""
        self._doing = doing
        self._total = total
        self._bar: Bar | None = _bar() if sys.stderr.isatty() and not quiet else None

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._doing, total=self._total, text="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, text: str) -> None:
        """``done`` of ``total`` is finished; ``text`` is shown after the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, text=text)


def _bar() -> "Bar":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        refresh_per_second=4,
    )
