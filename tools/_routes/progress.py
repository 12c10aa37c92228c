"""The progress of a run: bars and sentences on stderr. stdout holds only the result."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress:
    """One bar at a time. For one thread."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._bar: TaskID | None = None

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[None]:
        """Show a bar for the work of the block."""
        columns = (
            TextColumn("{task.description:20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Bars(*columns, console=self._console) as bars:
            self._bars, self._bar = bars, bars.add_task(what, total=total)
            try:
                yield
            finally:
                self._bars = self._bar = None

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show for how long the block has been running; its progress is unknown."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Bars(*columns, console=self._console) as bars:
            task = bars.add_task(what, total=1)
            yield
            bars.update(task, completed=1)

    def at(self, number: int) -> None:
        """Set the progress of the bar; does nothing without a bar."""
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, completed=number)

    def log(self, sentence: str) -> None:
        """Print a separate line."""
        self._console.print(sentence, highlight=False, soft_wrap=True)
