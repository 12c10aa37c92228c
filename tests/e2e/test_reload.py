"""SIGHUP at a running publisher-service: log levels and times take effect, other options are named until a restart."""

import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host
from tests.e2e.warm_start import Running

HOUR = 3600.0
IN_USE = "the configuration is reloaded; changed and in use: "
RESTART = "these options have changed, and need a restart of the service: "


class Reloaded:
    """A service that reads its file again, and the log lines that it writes about that."""

    def __init__(self, host: Host, log: Path, systemd: socket.socket) -> None:
        self._host = host
        self._log = log
        self._systemd = systemd
        self.process = self.start()

    def start(self) -> Running:
        """Start the service."""
        process = self._host.service()
        self._until_ready()
        return process

    def restart(self) -> None:
        """End the service in order, and start it again."""
        self.process.terminate()
        assert self.process.wait(LONG) == 0
        self.process = self.start()

    def reload(self) -> list[str]:
        """Send SIGHUP, wait for the end of the reload, and return its log lines without their beginnings."""
        before = len(self._log.read_text())
        self.process.send_signal(signal.SIGHUP)
        self._until_ready()
        lines = self._log.read_text()[before:].splitlines()
        return [line.partition("pubsub_lib.service.reload: ")[2] for line in lines if ".reload: " in line]

    def _until_ready(self) -> None:
        while self._systemd.recv(1000) != b"READY=1":
            pass  # the start of the reload, or a ping


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    """A host whose service reads the changelog once an hour."""
    with closing(Host(tmp_path, sqlite_url, follow_interval=HOUR)) as made:
        made.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        yield made


@pytest.fixture
def service(host: Host, tmp_path: Path) -> Iterator[Reloaded]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(LONG)
        yield Reloaded(host, tmp_path / "stderr", systemd)


def test_time_takes_effect_and_an_option_that_needs_a_restart_is_named_until_it(host: Host, service: Reloaded) -> None:
    with Store(host.settings) as store, store.transaction() as tx:
        tx.set("item", "k", 1, topic="t0")
    assert host.metric("links_total", "followed") == 0
    host.change(f"follow_interval = {HOUR}", "follow_interval = 0.05")
    host.change("lease = 2", "lease = 20")
    needed = f"{RESTART}lease in [publisher_service]"
    assert service.reload() == [f"{IN_USE}follow_interval in [publisher_service]", needed]
    assert poll(lambda: host.metric("links_total", "followed") == 1, LONG), "the new interval is not in use"
    assert service.reload() == [f"{IN_USE}no option", needed]
    assert service.process.poll() is None
    service.restart()
    assert service.reload() == [f"{IN_USE}no option"]


def test_log_level_takes_effect_and_an_invalid_file_changes_nothing(host: Host, service: Reloaded) -> None:
    valid = host.config.read_text()
    assert service.reload() == [f"{IN_USE}no option"]
    host.config.write_text(f"[DEFAULT]\ndefault_log_levels = pubsub_lib.service.reload=ERROR\n{valid}")
    assert service.reload() == [], "its sentence has the level INFO"
    host.config.write_text(f"{valid}[publisher_service]\nlease = soon\n")
    (refused,) = service.reload()
    assert refused.startswith("the configuration is not reloaded, and the service runs on with the old one: ")
    assert "soon" in refused
    host.config.write_text(valid)
    assert service.reload() == [f"{IN_USE}default_log_levels in [DEFAULT]"]
    assert poll(host.is_ready, LONG)  # a lease may just have ended on a busy machine
