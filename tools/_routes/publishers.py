"""The publisher-service of a run and the relays below it, which end together."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from _routes.configuration import Configuration
from _routes.service import Service


class Publishers:
    """The service of a run and the relays below it. No process is left after the ``with`` block. For one thread."""

    def __init__(self, configuration: Configuration, folder: Path) -> None:
        self.service = Service(configuration.service, folder)
        self.relays: Mapping[str, Service] = {
            name: Service(file.path, folder, name, file.url) for name, file in configuration.relays.items()
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for each in (self.service, *self.relays.values()):
            self._stack.enter_context(each)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def end(self) -> None:
        """End the relays, then the service, as an administrator would. Raises ChildError."""
        for each in (*self.relays.values(), self.service):
            each.end()
