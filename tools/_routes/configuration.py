"""The INI files of a run: one for a host with a publisher-service, and one for polling."""

from pathlib import Path

import msgspec
from _processes import free_port

from _routes.audit import journals
from _routes.drivers import DRIVERS
from _routes.plan import Plan

NAME = "demo"
"""The name of the host's service, which is also the origin of its workers' changes."""


class Configuration:
    """Writes both files into a folder that only its owner may read: a URL may contain a password. Raises OSError."""

    def __init__(self, plan: Plan, folder: Path, group: str) -> None:
        """``group``: the lines of the driver's group."""
        self.service = folder / "service.conf"
        self.polling = folder / "polling.conf"
        url = plan.url.replace("$", "$$")  # else oslo.config would look for an option
        timing = "".join(f"{name} = {value}\n" for name, value in msgspec.to_builtins(plan.timing).items())
        general = f"[pubsub]\nstore_url = {url}\n{timing}"
        if plan.results is not None:
            general += f"journal_folder = {journals(folder)}\n"
        self.polling.write_text(f"{general}enable_pub_sub = false\n")
        self.service.write_text(
            f"{general}enable_pub_sub = true\nservice_name = {NAME}\n"
            f"pub_sub_driver = {DRIVERS[plan.driver].name}\npub_sub_multiproc_driver = zmq_pubsub_multiproc_driver\n"
            f"publisher_bind_address = 127.0.0.1\npublisher_port = {free_port()}\n"
            f"publisher_multiproc_socket = {folder}/hop/socket\n"
            f"[publisher_service]\nmetrics_port = 0\n{group}"
        )
