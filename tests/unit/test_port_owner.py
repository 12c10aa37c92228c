"""The process that holds a port is found; unreadable processes are skipped without an error."""

import os
import socket
from pathlib import Path

from _processes import free_port

from pubsub_lib.port_owner import describe, owner_of_port


def test_a_listening_process_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert owner_of_port(server.getsockname()[1]).startswith(f"process {os.getpid()} (")


def test_the_owner_of_an_ipv6_port_is_found() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert owner_of_port(server.getsockname()[1]).startswith(f"process {os.getpid()} (")


def test_a_free_port_has_no_owner() -> None:
    assert owner_of_port(free_port()) == ""


def test_without_proc_no_owner_is_found(tmp_path: Path) -> None:
    assert owner_of_port(1, tmp_path) == ""
    assert describe(5, tmp_path) == "process 5"


def test_an_unreadable_process_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:0001 00000000:0000 0A 0:0 0:0 0 0 0 4711 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{row}\n")
    (tmp_path / "17").mkdir()  # without fd, as of a process that ended
    (tmp_path / "18" / "fd").mkdir(parents=True)
    (tmp_path / "18" / "fd" / "0").write_text("no link")
    assert owner_of_port(1, tmp_path) == ""
    (tmp_path / "18" / "fd" / "1").symlink_to("socket:[4711]")
    (tmp_path / "18" / "cmdline").write_bytes(b"python\0service.py\0")
    assert owner_of_port(1, tmp_path) == "process 18 (python service.py)"
