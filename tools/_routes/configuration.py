"""The INI files of a run: for a host with a publisher-service, for polling, for relays and the replicas below them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from _processes import free_port, free_ports

from _routes.audit import journals
from _routes.drivers import DRIVERS
from _routes.plan import SERVICE, Plan, ReplicaPlan

NAME = "demo"
"""The name of the host's service, which is also the origin of its workers' changes."""
DISCOVERY = 1.0
"""Seconds between two times in which a relay reads the addresses of services."""


class RelayFile(msgspec.Struct, frozen=True):
    """The file of one relay; the address at which it publishes, and the URL of its endpoint."""

    path: Path
    address: str
    url: str


class Configuration:
    """Writes all files into a folder that only its owner may read: a URL may contain a password. Raises OSError."""

    def __init__(self, plan: Plan, folder: Path, group: str) -> None:
        """``group``: the lines of the driver's group."""
        self._plan = plan
        self._folder = folder
        self._driver = f"enable_pub_sub = true\npub_sub_driver = {DRIVERS[plan.driver].name}\n"
        self.service = folder / "service.conf"
        self.polling = folder / "polling.conf"
        url = plan.url.replace("$", "$$")  # else oslo.config would look for an option
        timing = "".join(f"{name} = {value}\n" for name, value in msgspec.to_builtins(plan.timing).items())
        journal = f"journal_folder = {journals(folder)}\n" if plan.results is not None else ""
        self._common = f"{timing}{journal}"
        self._general = f"[pubsub]\nstore_url = {url}\n{self._common}"
        self.polling.write_text(f"{self._general}enable_pub_sub = false\n")
        metrics_port = free_port() if plan.relays else 0
        syncs = str(bool(plan.relays)).lower()
        self.service.write_text(
            f"{self._general}{self._driver}service_name = {NAME}\n"
            "pub_sub_multiproc_driver = zmq_pubsub_multiproc_driver\n"
            f"publisher_bind_address = 127.0.0.1\npublisher_port = {free_port()}\n"
            f"publisher_multiproc_socket = {folder}/hop/socket\n"
            f"[publisher_service]\nserve_syncs = {syncs}\nmetrics_port = {metrics_port}\n{group}"
        )
        self.relays: Mapping[str, RelayFile] = {name: self._relay(name, metrics_port) for name in plan.relays}
        self._below = {each.name: self._replica(each) for each in plan.replicas if each.parents}

    def of(self, replica: ReplicaPlan) -> Path:
        """The file of a replica."""
        if replica.parents:
            return self._below[replica.name]
        return self.polling if self.polls(replica) else self.service

    def polls(self, replica: ReplicaPlan) -> bool:
        """Whether a replica polls the database."""
        return replica.polling or not self._plan.service

    def listened_to(self, replica: ReplicaPlan, publishers: tuple[str, ...]) -> str:
        """The name of what a replica listens to. ``publishers``: the addresses that it reported."""
        if replica.parents:
            names = {file.address: name for name, file in self.relays.items()}
            return ", ".join(names.get(each, each) for each in publishers)
        return "the database" if self.polls(replica) else SERVICE

    def _relay(self, name: str, above: int) -> RelayFile:
        """``above``: the port of the endpoint of the service."""
        port, metrics_port = free_ports(2)
        file = self._folder / f"{name}.conf"
        file.write_text(
            f"{self._general}{self._driver}service_name = {name}\ntopics = {', '.join(self._plan.relay_topics)}\n"
            f"publisher_bind_address = 127.0.0.1\npublisher_port = {port}\n"
            f"sync_url = http://127.0.0.1:{above}\ndiscovery_interval = {DISCOVERY}\n"
            f"[publisher_service]\nrole = relay\nserve_syncs = true\nmetrics_port = {metrics_port}\n"
        )
        return RelayFile(file, f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}")

    def _replica(self, replica: ReplicaPlan) -> Path:
        """The file of a replica below relays: it has no URL of the database."""
        parents = [self.relays[name] for name in replica.parents]
        file = self._folder / f"{replica.name}.conf"
        file.write_text(
            f"[pubsub]\n{self._common}{self._driver}"
            f"parents = {', '.join(each.address for each in parents)}\n"
            f"sync_url = {', '.join(each.url for each in parents)}\n"
        )
        return file
