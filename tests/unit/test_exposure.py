"""Listeners that others can reach are refused without keys, unless ``insecure = true``; then each start warns."""

import logging
from pathlib import Path

import pytest

from pubsub_lib import exposure
from pubsub_lib.errors import ConfigError
from pubsub_lib.exposure import is_exposed, is_loopback

OPEN = [
    "tcp://*:8866", "tcp://0.0.0.0:8866", "tcp://[::]:8866", "tcp://0:8866", "tcp://[::0]:1", "tcp://192.0.2.7:8866",
    "tcp://[fe80::5]:8866", "tcp://[::ffff:192.0.2.7]:1", "tcp://api-1.example:8866", "tcp://eth0:8866",
    "http://0.0.0.0:8867", "http://:::8867", "http://*:8867", "nats://10.0.0.1:4222", "tcp://127.0.0.1.example:8866",
]  # fmt: skip
CLOSED = [
    "", "memory://bus", "inproc://x", "tcp://127.0.0.1:8866", "tcp://127.8.8.8:1", "tcp://[::1]:8866",
    "tcp://localhost:8866", "http://::1:8867", "http://127.0.0.1:0", "tcp://[::ffff:127.0.0.1]:1",
]  # fmt: skip


@pytest.mark.parametrize("address", OPEN)
def test_exposed_listener_is_refused_by_option_and_address(address: str) -> None:
    assert is_exposed(address)
    with pytest.raises(ConfigError, match="there are no keys") as caught:
        exposure.check({"the option": address}, insecure=False)
    assert f"{address} (the option)" in str(caught.value)
    assert "insecure = true in [pubsub]" in str(caught.value)


@pytest.mark.parametrize("address", CLOSED)
def test_private_listener_needs_no_option_and_no_warning(address: str, caplog: pytest.LogCaptureFixture) -> None:
    assert not is_exposed(address)
    exposure.warn({"an option": address}, insecure=False)
    exposure.warn({"an option": address}, insecure=True)
    assert caplog.text == ""


def test_insecure_allows_an_exposed_listener_with_a_warning_at_each_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pubsub_lib.exposure"):
        for _ in range(2):
            exposure.warn({"one": "tcp://*:1", "two": "tcp://127.0.0.1:2", "three": "http://0.0.0.0:3"}, insecure=True)
    assert [each.levelname for each in caplog.records] == ["WARNING"] * 2
    assert "tcp://*:1 (one), http://0.0.0.0:3 (three)" in caplog.text
    assert "(two)" not in caplog.text


def test_warn_refuses_without_the_option() -> None:
    with pytest.raises(ConfigError, match=r"tcp://\*:1 \(one\)"):
        exposure.warn({"one": "tcp://*:1"}, insecure=False)


@pytest.mark.parametrize(
    ("mode", "exposed"), [(0o700, False), (0o755, False), (0o775, True), (0o757, True), (0o1777, True)]
)
def test_ipc_socket_is_exposed_in_a_folder_that_others_may_write(tmp_path: Path, mode: int, exposed: bool) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    folder.chmod(mode)
    assert is_exposed(f"ipc://{folder}/socket") == exposed
    (folder / "inner").mkdir(mode=0o700)
    sticky = mode & 0o1000
    assert is_exposed(f"ipc://{folder}/inner/socket") == (exposed and not sticky), "others may rename the inner folder"


def test_ipc_socket_is_exposed_behind_a_link_into_an_open_folder(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    assert is_exposed(f"ipc://{tmp_path}/link/socket")


def test_ipc_socket_is_exposed_in_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir(mode=0o700)
    own = folder.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: own + 1)
    assert is_exposed(f"ipc://{folder}/socket") == (own != 0)


def test_ipc_socket_in_a_missing_folder_is_checked_by_the_folders_above(tmp_path: Path) -> None:
    assert not is_exposed(f"ipc://{tmp_path}/missing/socket")
    tmp_path.chmod(0o777)
    assert is_exposed(f"ipc://{tmp_path}/missing/socket")


@pytest.mark.parametrize(
    ("rest", "loopback"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("*:1", False)],
)
def test_loopback_is_recognised(rest: str, loopback: bool) -> None:
    assert is_loopback(rest) == loopback
