"""Only one process holds the lock of an ipc path, and the error for the next process names it."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib.errors import TransportError
from pubsub_lib.socket_lock import SocketLock

ROOT = Path(__file__).resolve().parents[2]


def lock(path: Path) -> SocketLock:
    return SocketLock(path, "some_option")


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first = lock(tmp_path / "socket")
    with pytest.raises(TransportError, match=f"held by process {os.getpid()} "):
        lock(tmp_path / "socket")
    first.release()
    first.release()
    second = lock(tmp_path / "socket")
    first.release()  # must not release the lock that another holder has now
    with pytest.raises(TransportError):
        lock(tmp_path / "socket")
    second.release()


def test_a_released_lock_is_free_although_a_fork_kept_a_copy(tmp_path: Path) -> None:
    first = lock(tmp_path / "socket")
    copy = os.dup(first._fd)
    first.release()
    lock(tmp_path / "socket").release()
    os.close(copy)


def test_dropping_a_copy_keeps_the_lock(tmp_path: Path) -> None:
    first = lock(tmp_path / "socket")
    copy = os.dup(first._fd)
    first.drop_copy()  # as in a child
    with pytest.raises(TransportError):
        lock(tmp_path / "socket")
    os.close(copy)


def test_lock_works_with_garbage_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "socket.lock").write_text("garbage of a process that crashed")
    first = lock(tmp_path / "socket")
    (tmp_path / "socket.lock").write_text("garbage")
    with pytest.raises(TransportError, match="held by another process"):
        lock(tmp_path / "socket")
    first.release()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=f"the lock file '{tmp_path}/none/socket.lock' cannot be opened"):
        lock(tmp_path / "none" / "socket")


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "socket.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(TransportError, match=r"socket\.lock' cannot be opened"):
        lock(tmp_path / "socket")
    assert (tmp_path / "precious").read_text() == "kept"


def test_lock_file_of_another_user_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock(tmp_path / "socket").release()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TransportError, match=rf"belongs to user {os.getuid()}, not to 12345; remove it"):
        lock(tmp_path / "socket")


def test_lock_is_held_on_a_full_disk_without_its_holders_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        held = lock(tmp_path / "socket")
    with pytest.raises(TransportError, match="is held by another process"):
        lock(tmp_path / "socket")
    held.release()


def test_file_system_without_locks_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(TransportError, match="the file system does not lock"):
        lock(tmp_path / "socket")


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pubsub_lib.socket_lock import SocketLock\n"
        "lock = SocketLock(Path(sys.argv[1]), 'some_option'); print('held', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}
    command = [sys.executable, "-c", code, str(tmp_path / "socket")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(TransportError, match=f"held by process {holder.pid} "):
            lock(tmp_path / "socket")
        holder.kill()
        holder.wait()
    lock(tmp_path / "socket").release()


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "socket.lock").mkdir()
    with pytest.raises(TransportError, match=r"socket\.lock' cannot be opened"):
        lock(tmp_path / "socket")


def test_the_error_names_the_option_that_sets_the_path(tmp_path: Path) -> None:
    first = lock(tmp_path / "socket")
    with pytest.raises(TransportError, match="stop that process, or set some_option to another path"):
        lock(tmp_path / "socket")
    first.release()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "fifo"])
def test_path_of_another_file_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    """ZeroMQ deletes what is at the path of its socket; one wrong line would delete a database."""
    path, database = tmp_path / "socket", tmp_path / "net.db"
    database.write_bytes(b"SQLite format 3")
    if kind == "file":
        path.write_bytes(b"SQLite format 3")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(database)
    else:
        os.mkfifo(path)
    before = path.lstat()
    with pytest.raises(TransportError, match=r"socket' exists and is not a socket; .* or set some_option"):
        lock(path)
    assert path.lstat() == before
    assert database.read_bytes() == b"SQLite format 3"
    assert not (tmp_path / "socket.lock").exists()
