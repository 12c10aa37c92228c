"""What systemd is told, on a real datagram socket."""

import os
import socket
from pathlib import Path

import pytest

from pubsub_lib.service.notify import notify, watchdog_seconds


@pytest.mark.parametrize("abstract", [False, True])
def test_the_state_arrives(abstract: bool, tmp_path: Path) -> None:
    name = f"@pubsub-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(10)
        assert notify("READY=1", {"NOTIFY_SOCKET": name})
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens() -> None:
    assert not notify("READY=1", {})


def test_a_systemd_that_went_away_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
def test_the_watchdog_hears_twice_as_often_as_it_must(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environment) == seconds
