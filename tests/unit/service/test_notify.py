"""Notifications to systemd, on a real datagram socket."""

import os
import socket
from pathlib import Path

import pytest

from pubsub_lib.service.notify import notify, watchdog_seconds


@pytest.mark.parametrize("abstract", [False, True])
def test_notify_sends_the_state(abstract: bool, tmp_path: Path) -> None:
    name = f"@pubsub-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(10)
        assert notify("READY=1", {"NOTIFY_SOCKET": name})
        assert systemd.recv(100) == b"READY=1"


def test_notify_does_nothing_without_systemd() -> None:
    assert not notify("READY=1", {})


def test_notify_logs_an_unreachable_systemd(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "cannot notify systemd of 'READY=1'" in caplog.text


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_interval_is_half_of_systemds(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environment) == seconds
