"""The location of the worker socket: paths, folders and the lock. Each error names the remedy."""

import os
import stat
from pathlib import Path

import pytest

from pubsub_lib.errors import ConfigError, TransportError
from pubsub_lib.socket_path import MAX_BYTES, check_folder, make_folder, path_of

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:1", "ipc://", "ipc://relative", "ipc://@abstract"])
def test_address_without_an_absolute_path_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="publisher_multiproc_socket"):
        path_of(address)


def test_path_longer_than_107_bytes_is_refused() -> None:
    longest = "/" + "x" * (MAX_BYTES - 1)
    assert path_of(f"ipc://{longest}") == Path(longest)
    with pytest.raises(ConfigError, match="108 bytes but the system allows 107"):
        path_of(f"ipc://{longest}x")
    with pytest.raises(ConfigError, match="109 bytes"):
        path_of("ipc:///" + "ä" * 54)


def test_folder_is_private_to_its_owner_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "run" / "hop" / "socket")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run" / "hop").stat().st_mode) == 0o700
    make_folder(tmp_path / "run" / "hop" / "socket")  # a second call changes nothing


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_can_enter_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "hop"
    folder.mkdir()
    folder.chmod(mode)
    for check in (make_folder, check_folder):
        with pytest.raises(TransportError, match=f"mode {mode:04o}.*chmod 700"):
            check(folder / "socket")


@pytest.mark.parametrize(("mode", "other"), [(0o1777, ""), (0o755, "something-else")])
def test_shared_folder_error_does_not_recommend_chmod(mode: int, other: str, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    if other:
        (folder / other).write_text("")
    folder.chmod(mode)
    with pytest.raises(TransportError, match="in a folder of its own") as caught:
        make_folder(folder / "socket")
    assert "chmod" not in str(caught.value)


def test_folder_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "others" / "socket")
    (tmp_path / "hop").symlink_to(tmp_path / "others")
    with pytest.raises(TransportError, match=r"hop' of the worker socket is a link"):
        make_folder(tmp_path / "hop" / "socket")


def test_root_refuses_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "hop" / "socket")
    if os.geteuid() == 0:
        os.chown(tmp_path / "hop", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(TransportError, match=r"belongs to user \d+ and not to the service's 0"):
        make_folder(tmp_path / "hop" / "socket")
    check_folder(tmp_path / "hop" / "socket")  # a worker that is root may use a service's of another user


def test_worker_accepts_a_missing_folder(tmp_path: Path) -> None:
    check_folder(tmp_path / "not-yet" / "socket")


def test_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportError, match="of the worker socket cannot be created"):
        make_folder(tmp_path / "file" / "hop" / "socket")
