"""Proxies that can cut all connections of a driver under test together."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pubsub_lib.testing.stream_proxy import IPC, TCP, StreamProxy


class Proxies:
    """One proxy in front of each address."""

    def __init__(self, targets: Iterable[str]) -> None:
        self._proxies = [StreamProxy(_beside(target), target) for target in targets]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(each.address for each in self._proxies)

    @property
    def ways(self) -> dict[str, Any]:
        """What a rig needs of them."""
        return {"cut": self.cut, "restore": self.restore, "stall": self.stall, "resume": self.resume}

    def cut(self) -> None:
        for each in self._proxies:
            each.cut()

    def restore(self) -> None:
        for each in self._proxies:
            each.restore()

    def stall(self) -> None:
        for each in self._proxies:
            each.stall()

    def resume(self) -> None:
        for each in self._proxies:
            each.resume()

    def close(self) -> None:
        for each in self._proxies:
            each.close()


def _beside(target: str) -> str:
    return f"{TCP}127.0.0.1:0" if target.startswith(TCP) else f"{IPC}{target.removeprefix(IPC)}-proxy"


@contextmanager
def proxies(targets: Iterable[str]) -> Iterator[Proxies]:
    made = Proxies(targets)
    try:
        yield made
    finally:
        made.close()
