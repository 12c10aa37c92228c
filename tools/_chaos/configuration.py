"""The INI file of each participant: one per service, with its workers, and one per replica."""

from pathlib import Path
from typing import Final

import msgspec
from _processes import free_ports
from _routes.audit import journals

from _chaos.plan import Cast
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
        self.ports = dict(zip(cast.service_names, free_ports(cast.services), strict=True))
        """The port that each service binds."""
        self._cast = cast
        self._folder = folder
        times = "".join(f"{name} = {value}\n" for name, value in msgspec.to_builtins(TIMING).items())
        self._general = f"[pubsub]\n{times}journal_folder = {journals(folder)}\n"

    def hop(self, service: str) -> Path:
        """The socket between the workers and their service. Its path must be short: the system allows 107 bytes, and
        the folder may be a deep one of a test.
        """
        return self._folder / str(self._cast.service_names.index(service)) / SOCKET

    def service(self, name: str, shown: str, url: str) -> Path:
        """Write the file of a service. ``shown``: its address in the directory, that of a proxy."""
        return self._write(name, url, self._of_service(name, shown))

    def worker(self, name: str, shown: str, url: str) -> Path:
        """Write the file of a worker: that of its service, with its own way to the database."""
        return self._write(name, url, self._of_service(self._cast.service_of(name), shown))

    def replica(self, name: str, first: str, url: str) -> Path:
        """Write the file of a replica. It connects to the address ``first``, and finds the others in the directory."""
        if self._cast.polls(name):
            return self._write(name, url, "enable_pub_sub = false\n")
        port = first.removeprefix(TCP).rpartition(":")[2]
        return self._write(
            name,
            url,
            f"enable_pub_sub = true\npublishers_ips = 127.0.0.1\npublisher_port = {port}\n"
            f"discovery_interval = {DISCOVERY}\n",
        )

    def _of_service(self, name: str, shown: str) -> str:
        return (
            f"enable_pub_sub = true\nservice_name = {name}\npublisher_bind_address = 127.0.0.1\n"
            f"publisher_port = {self.ports[name]}\npublisher_multiproc_socket = {self.hop(name)}\n"
            f"[publisher_service]\nmetrics_port = 0\naddress = {shown}\nlease = 2\nfollow_interval = 0.1\n"
            "grace = 0.3\n"
        )

    def _write(self, name: str, url: str, options: str) -> Path:
        path = self._folder / f"{name}.conf"
        # "$$": else oslo.config would look for an option.
        path.write_text(f"{self._general}store_url = {url.replace('$', '$$')}\n{options}")
        path.chmod(0o600)
        return path
