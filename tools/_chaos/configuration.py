"""The INI file of each participant: one per service, with its workers, and one per replica."""

from pathlib import Path
from typing import Final

import msgspec
from _processes import free_ports
from _routes.audit import journals
from _routes.drivers import DRIVERS

from _chaos.plan import ZMQ, Cast
from pubsub_lib import Timing
from pubsub_lib.testing.stream_proxy import TCP

# All processes are on one host, so times may be short; the defaults are for networks.
TIMING: Final = Timing(
    max_idle_time=2.0,
    message_delay_window=0.3,
    hello_wait=0.3,
    reading_age=0.5,
    round_trip=0.5,
    poll_interval=0.5,
    connect_jitter=0.1,
    sync_jitter=0.05,
    sync_interval=0.2,
    sync_backoff=0.5,
    max_sync_backoff=4.0,
    recount_time=30.0,
    verify_interval=15.0,
)
SOCKET: Final = "s"
"""The name of the socket between workers and a service, in a folder of the service."""
DISCOVERY: Final = 1.0
"""Seconds between two readings of the services' addresses."""


class Configuration:
    """Writes the files into folders that only their owner may read: a URL may hold a password. Raises OSError."""

    def __init__(self, cast: Cast, folder: Path) -> None:
        self.ports: dict[str, int] = {}
        """The port that each service binds; with another driver than ZeroMQ none does."""
        if cast.driver == ZMQ:
            self.ports.update(zip(cast.service_names, free_ports(cast.services), strict=True))
        self._cast = cast
        self._folder = folder
        times = "".join(f"{name} = {value}\n" for name, value in msgspec.to_builtins(TIMING).items())
        self._general = f"[pubsub]\n{times}journal_folder = {journals(folder)}\n"

    def hop(self, service: str) -> Path:
        """The socket between the workers and their service. Its path must be short: the system allows 107 bytes, and
        the folder may be a deep one of a test.
        """
        return self._folder / str(self._cast.service_names.index(service)) / SOCKET

    def service(self, name: str, shown: str, url: str, port: int = 0) -> Path:
        """Write the file of a service. ``shown``: its address in the directory, that of a proxy; "" without ZeroMQ.
        ``port``: at which it reaches the broker.
        """
        return self._write(name, url, self._of_service(name, shown, port))

    def worker(self, name: str, shown: str, url: str, service: str = "") -> Path:
        """Write the file of a worker: that of its service, with its own way to the database. ``service``: of a process
        that is no worker of the run.
        """
        return self._write(name, url, self._of_service(service or self._cast.service_of(name), shown, 0))

    def replica(self, name: str, first: str, url: str, port: int = 0) -> Path:
        """Write the file of a replica. With ZeroMQ it connects to the address ``first``, and finds the others in the
        directory; else it reaches the broker at ``port``.
        """
        if self._cast.polls(name):
            return self._write(name, url, "enable_pub_sub = false\n")
        if self._cast.driver != ZMQ:
            return self.subscriber(name, url, port)
        return self._write(
            name,
            url,
            f"enable_pub_sub = true\npublishers_ips = 127.0.0.1\npublisher_port = {_port(first)}\n"
            f"discovery_interval = {DISCOVERY}\n",
        )

    def subscriber(self, name: str, url: str, port: int) -> Path:
        """Write the file of any subscriber of a driver other than ZeroMQ."""
        return self._write(name, url, f"enable_pub_sub = true\n{self._driver(port)}")

    def _of_service(self, name: str, shown: str, port: int) -> str:
        common = f"enable_pub_sub = true\nservice_name = {name}\npublisher_multiproc_socket = {self.hop(name)}\n"
        service = "[publisher_service]\nmetrics_port = 0\nlease = 2\nfollow_interval = 0.1\ngrace = 0.3\n"
        if self._cast.driver != ZMQ:
            hop = "pub_sub_multiproc_driver = zmq_pubsub_multiproc_driver\n"
            return f"{common}{hop}{self._driver(port)}{service}"
        bound = f"publisher_bind_address = 127.0.0.1\npublisher_port = {self.ports[name]}\n"
        return f"{common}{bound}{service}address = {shown}\n"

    def _driver(self, port: int) -> str:
        """The driver, and its group."""
        driver = DRIVERS[self._cast.driver]
        return f"pub_sub_driver = {driver.name}\n{driver.lines(port)}"

    def _write(self, name: str, url: str, options: str) -> Path:
        path = self._folder / f"{name}.conf"
        # "$$": else oslo.config would look for an option.
        path.write_text(f"{self._general}store_url = {url.replace('$', '$$')}\n{options}")
        path.chmod(0o600)
        return path


def _port(address: str) -> int:
    return int(address.removeprefix(TCP).rpartition(":")[2])
