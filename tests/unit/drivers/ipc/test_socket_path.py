"""Where the worker socket lies: paths, folders and the lock, each refusal a sentence with its way out."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_ipc.socket_path import MAX_BYTES, SocketLock, check_folder, make_folder, path_of
from pubsub_lib.errors import ConfigError, TransportError

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:1", "ipc://", "ipc://relative", "ipc://@abstract"])
def test_an_address_that_is_no_absolute_path_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="publisher_multiproc_socket"):
        path_of(address)


def test_a_path_ends_at_107_bytes() -> None:
    longest = "/" + "x" * (MAX_BYTES - 1)
    assert path_of(f"ipc://{longest}") == Path(longest)
    with pytest.raises(ConfigError, match="108 bytes but the system allows 107"):
        path_of(f"ipc://{longest}x")
    with pytest.raises(ConfigError, match="109 bytes"):
        path_of("ipc:///" + "ä" * 54)


def test_the_folder_is_made_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "run" / "hop" / "socket")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run" / "hop").stat().st_mode) == 0o700
    make_folder(tmp_path / "run" / "hop" / "socket")  # again is harmless


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_can_enter_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "hop"
    folder.mkdir()
    folder.chmod(mode)
    for check in (make_folder, check_folder):
        with pytest.raises(TransportError, match=f"mode {mode:04o}.*chmod 700"):
            check(folder / "socket")


@pytest.mark.parametrize(("mode", "other"), [(0o1777, ""), (0o755, "something-else")])
def test_nobody_is_told_to_close_a_folder_that_serves_others_too(mode: int, other: str, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    if other:
        (folder / other).write_text("")
    folder.chmod(mode)
    with pytest.raises(TransportError, match="in a folder of its own") as caught:
        make_folder(folder / "socket")
    assert "chmod" not in str(caught.value)


def test_a_service_takes_no_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    make_folder(tmp_path / "others" / "socket")
    (tmp_path / "hop").symlink_to(tmp_path / "others")
    with pytest.raises(TransportError, match=r"hop' of the worker socket is a link"):
        make_folder(tmp_path / "hop" / "socket")


def test_root_takes_no_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "hop" / "socket")
    if os.geteuid() == 0:
        os.chown(tmp_path / "hop", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(TransportError, match=r"belongs to user \d+ and not to the service's 0"):
        make_folder(tmp_path / "hop" / "socket")
    check_folder(tmp_path / "hop" / "socket")  # a worker that is root may use a service's of another user


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "socket.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(TransportError, match=r"socket\.lock' cannot be opened"):
        SocketLock(tmp_path / "socket")
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_full_disk_costs_the_lock_its_holder_s_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        lock = SocketLock(tmp_path / "socket")
    with pytest.raises(TransportError, match="is held by another process"):
        SocketLock(tmp_path / "socket")
    lock.release()


def test_a_file_system_without_locks_is_not_called_a_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(TransportError, match="the file system does not lock"):
        SocketLock(tmp_path / "socket")


def test_a_folder_that_is_not_there_yet_is_the_service_s_to_make(tmp_path: Path) -> None:
    check_folder(tmp_path / "not-yet" / "socket")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportError, match="of the worker socket cannot be created"):
        make_folder(tmp_path / "file" / "hop" / "socket")


def test_the_second_lock_names_the_first_one_s_holder(tmp_path: Path) -> None:
    lock = SocketLock(tmp_path / "socket")
    with pytest.raises(TransportError, match=rf"socket' is held by process {os.getpid()} \("):
        SocketLock(tmp_path / "socket")
    lock.release()
    SocketLock(tmp_path / "socket").release()


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pubsub_ipc.socket_path import SocketLock\n"
        "lock = SocketLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}
    command = [sys.executable, "-c", code, str(tmp_path / "socket")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(TransportError, match=f"held by process {holder.pid} "):
            SocketLock(tmp_path / "socket")
        holder.kill()
        holder.wait()
    SocketLock(tmp_path / "socket").release()


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "socket.lock").mkdir()
    with pytest.raises(TransportError, match=r"socket\.lock' cannot be opened"):
        SocketLock(tmp_path / "socket")
