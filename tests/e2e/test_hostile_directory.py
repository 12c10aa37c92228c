"""A directory entry with terminal escapes: ``pubsub-db`` in a real terminal prints no raw control character."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from _children import environment

from pubsub_lib import Store
from tests.e2e.service_host import LONG
from tests.unit.cli.conftest import alone
from tests.unit.cli.test_output import EVIL, VISIBLE

COMMANDS: dict[str, tuple[str, ...]] = {
    "publishers, table": ("publishers",),
    "publishers, value": ("publishers", "-f", "value"),
    "publishers, csv": ("publishers", "-f", "csv"),
    "publishers, json": ("publishers", "-f", "json"),
    "publishers, yaml": ("publishers", "-f", "yaml"),
    "status, table": ("status", "--ask", "1"),
    "status, value": ("status", "--ask", "1", "-f", "value"),
    "watch, value": ("-v", "watch", "--seconds", "3", "-f", "value"),
}
"""What shows entries, or connects to their addresses and reports the failure."""
CONNECTED: Final = "tcp://127.0.0.1\x1b[2J\x9b\u202e:1"
"""An address without spaces and ends of lines, to which ZeroMQ is asked to connect."""
SHOWN: Final = r"tcp://127.0.0.1\x1b[2J\x9b\u202e:1"


def printed(*arguments: str) -> bytes:
    """All that ``pubsub-db`` writes to its terminal."""
    outside, inside = pty.openpty()
    command = [sys.executable, "-m", "pubsub_lib.cli", *arguments]
    variables = environment({"TERM": "xterm", "COLUMNS": "300"})
    try:
        with subprocess.Popen(command, env=variables, stdin=inside, stdout=inside, stderr=inside) as process:
            os.close(inside)
            found = b""
            try:
                while part := os.read(outside, 65536):
                    found += part
            except OSError:  # the program has closed the terminal
                pass
            assert process.wait(LONG) == 0, found
    finally:
        os.close(outside)
    return found


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_entry_is_escaped_on_a_terminal(name: str, tmp_path: Path, sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        store.directory.register(f"name {EVIL}", f"uuid {EVIL}", f"tcp://{EVIL}:1", 600.0)
        store.directory.register("api-2", "u2", CONNECTED, 600.0)
    config = alone(tmp_path, sqlite_url)
    config.write_text(f"{config.read_text()}enable_pub_sub = true\n")  # by ZeroMQ, which connects to the addresses
    found = printed("--config-file", str(config), *COMMANDS[name]).decode()
    assert all(each.isprintable() for each in found.split("\r\n")), found
    if "watch" in name:
        assert f"cannot listen to the publisher at tcp://{VISIBLE}:1" in found
        assert re.search(rf"listening to everything by \S+ at .*{re.escape(SHOWN)}", found)
    if name in ("publishers, table", "publishers, value"):
        for each in (f"name {VISIBLE}", f"tcp://{VISIBLE}:1", SHOWN):
            assert each in found
