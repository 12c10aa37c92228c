"""The proxies between services and replicas, which faults cut."""

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pubsub_lib.testing.stream_proxy import TCP, StreamProxy

_HERE = f"{TCP}127.0.0.1:"


class Wires:
    """A proxy before each service. Its address is the one in the directory. Closed with a ``with`` block."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        """``ports``: the port that each service binds. Raises OSError."""
        self._stack = ExitStack()
        self._services: dict[str, StreamProxy] = {}
        for name, port in ports.items():
            proxy = StreamProxy(f"{_HERE}0", f"{_HERE}{port}")
            self._stack.callback(proxy.close)
            self._services[name] = proxy

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def address(self, service: str) -> str:
        """The address at which replicas reach a service."""
        return self._services[service].address

    def cut(self, service: str) -> None:
        """End all connections of replicas to the service, and refuse new ones until ``restore``."""
        self._services[service].cut()

    def restore(self, service: str) -> None:
        """Accept connections again."""
        self._services[service].restore()
