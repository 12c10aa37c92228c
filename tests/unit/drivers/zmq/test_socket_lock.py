"""Only one process holds the lock of an ipc path, and the error for the next process names it."""

import os
from pathlib import Path

import pytest

from pubsub_lib.errors import TransportError
from pubsub_zmq.socket_lock import IpcLock


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first = IpcLock(f"{tmp_path}/socket")
    with pytest.raises(TransportError, match=f"held by process {os.getpid()} "):
        IpcLock(f"{tmp_path}/socket")
    first.release()
    first.release()
    second = IpcLock(f"{tmp_path}/socket")
    first.release()  # must not release the lock that another holder has now
    with pytest.raises(TransportError):
        IpcLock(f"{tmp_path}/socket")
    second.release()


def test_a_released_lock_is_free_although_a_fork_kept_a_copy(tmp_path: Path) -> None:
    first = IpcLock(f"{tmp_path}/socket")
    copy = os.dup(first._fd)
    first.release()
    IpcLock(f"{tmp_path}/socket").release()
    os.close(copy)


def test_dropping_a_copy_keeps_the_lock(tmp_path: Path) -> None:
    first = IpcLock(f"{tmp_path}/socket")
    copy = os.dup(first._fd)
    first.drop_copy()  # as in a child
    with pytest.raises(TransportError):
        IpcLock(f"{tmp_path}/socket")
    os.close(copy)


def test_lock_works_with_garbage_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "socket.lock").write_text("garbage of a process that crashed")
    first = IpcLock(f"{tmp_path}/socket")
    (tmp_path / "socket.lock").write_text("garbage")
    with pytest.raises(TransportError, match="held by another process"):
        IpcLock(f"{tmp_path}/socket")
    first.release()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=f"cannot create the lock '{tmp_path}/none/socket.lock'"):
        IpcLock(f"{tmp_path}/none/socket")


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "socket.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(TransportError, match=r"cannot create the lock .*socket\.lock"):
        IpcLock(str(tmp_path / "socket"))
    assert (tmp_path / "precious").read_text() == "kept"


def test_lock_file_of_another_user_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    IpcLock(str(tmp_path / "socket")).release()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TransportError, match=rf"belongs to user {os.getuid()}, not to 12345; remove it"):
        IpcLock(str(tmp_path / "socket"))
