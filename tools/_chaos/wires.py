"""The proxies between services and replicas, or processes and the broker, and between processes and the database
server, which faults cut.
"""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import sqlalchemy
from _cutting_proxy import CuttingProxy

from pubsub_lib.testing.stream_proxy import TCP, StreamProxy

_HERE = f"{TCP}127.0.0.1:"


class Wires:
    """A proxy before each service, whose address is the one in the directory; with a broker, in their place, one
    between the broker and each process. With a database server: one between the server and each process, and a further
    one for each worker, which cuts at COMMIT. Closed with a ``with`` block.
    """

    def __init__(
        self,
        ports: Mapping[str, int],
        url: str,
        server_port: int,
        names: Collection[str],
        broker_port: int = 0,
        broker_users: Collection[str] = (),
    ) -> None:
        """``ports``: the port that each service binds, if it binds one. ``url``: of the database; ``server_port``: of
        its server, 0 without one; ``names``: the processes that use it. ``broker_port``: of the broker, 0 without one;
        ``broker_users``: the processes that connect to it. Raises OSError.
        """
        self._stack = ExitStack()
        self._url = url
        self.broker_port = broker_port
        try:
            self._services = {name: self._proxy(port) for name, port in ports.items()}
            self._brokers = {name: self._proxy(broker_port) for name in broker_users}
            self._databases = {name: self._proxy(server_port) for name in names} if server_port else {}
            self._commits = {name: self._cutting(name) for name in self._databases if name.startswith("worker")}
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def address(self, service: str) -> str:
        """The address at which replicas reach a service."""
        return self._services[service].address

    @property
    def direct_url(self) -> str:
        """The URL of the database without a proxy."""
        return self._url

    def url(self, name: str) -> str:
        """The URL of the database for one process, without a server the same for all."""
        if name not in self._databases:
            return self._url
        port = self._commits[name].port if name in self._commits else _port(self._databases[name])
        return sqlalchemy.make_url(self._url).set(port=port).render_as_string(hide_password=False)

    def to_broker(self, name: str) -> int:
        """The port at which a process reaches the broker; 0 without one."""
        return _port(self._brokers[name]) if name in self._brokers else self.broker_port

    def cut(self, name: str) -> None:
        """End all connections of replicas to a service, or of a process to the broker, and refuse new ones until
        ``restore``.
        """
        self._cuttable(name).cut()

    def restore(self, name: str) -> None:
        """Accept connections again."""
        self._cuttable(name).restore()

    def redirect(self, service: str, port: int) -> None:
        """Cut all connections of replicas to the service, and connect them to another port of this host instead."""
        proxy = self._services[service]
        proxy.cut()
        proxy.target = f"{_HERE}{port}"
        proxy.restore()

    def cut_database(self, name: str) -> None:
        """As ``cut``, between one process and the database server."""
        self._databases[name].cut()

    def restore_database(self, name: str) -> None:
        """Accept connections again."""
        self._databases[name].restore()

    def arm(self, worker: str, detail: str) -> None:
        """Cut the worker's connection ``before`` or ``after`` its next COMMIT; "": do not."""
        self._commits[worker].mode = "before" if detail == "before" else "after" if detail == "after" else "pass"

    @property
    def commits_cut(self) -> int:
        """The number of connections that were cut at COMMIT."""
        return sum(proxy.cuts for proxy in self._commits.values())

    def _cuttable(self, name: str) -> StreamProxy:
        return self._brokers[name] if name in self._brokers else self._services[name]

    def _proxy(self, port: int) -> StreamProxy:
        made = StreamProxy(f"{_HERE}0", f"{_HERE}{port}")
        self._stack.callback(made.close)
        return made

    def _cutting(self, name: str) -> CuttingProxy:
        made = CuttingProxy(_port(self._databases[name]))
        self._stack.callback(made.close)
        return made


def _port(proxy: StreamProxy) -> int:
    return int(proxy.address.rpartition(":")[2])
