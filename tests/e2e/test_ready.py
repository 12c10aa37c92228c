"""``/ready`` of real processes with an unreachable database: no answer is 200 before the first sync."""

import contextlib
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from _processes import free_port, free_ports

from pubsub_lib import Store

ROOT: Final = Path(__file__).resolve().parents[2]
LONG: Final = 120.0
STARTS: Final = 4
ANSWERS: Final = 20
"""Number of checked answers after each start; the first ones come while the program is still starting."""


def ask(port: int) -> int:
    """The status of ``/ready``; 0 while no process listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def answers(port: int, process: "subprocess.Popen[str]", enough: int) -> list[int]:
    """The first answers of a process, requested without a pause even before it listens; fewer when it ends."""
    found: list[int] = []
    until = time.monotonic() + LONG
    while len(found) < enough and process.poll() is None:
        assert time.monotonic() < until, f"only {len(found)} answers came in {LONG} s"
        status = ask(port)
        if status:
            found.append(status)
    return found


@contextmanager
def running(*command: object) -> Iterator["subprocess.Popen[str]"]:
    """A program of this source tree; killed at the end."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}
    arguments = [sys.executable, *map(str, command)]
    with subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def configuration(folder: Path, database: str, port: int, *service: str) -> Path:
    path = folder / "net.conf"
    lines = [
        "[pubsub]",
        f"store_url = {database}",
        "enable_pub_sub = true",
        "service_name = api-1",
        f"publisher_port = {free_port()}",
        f"publisher_multiproc_socket = {folder}/hop/socket",
        *(service or [f"replica_metrics_port = {port}"]),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_controller_without_its_database_is_never_ready(tmp_path: Path) -> None:
    unused, *ports = free_ports(STARTS + 1)
    refusing = f"postgresql://user@127.0.0.1:{unused}/none"
    missing = f"sqlite:///{tmp_path}/none/there.db"
    controller = ROOT / "tests" / "e2e" / "service_controller.py"
    first: list[Sequence[int]] = []
    for number, port in enumerate(ports):
        config = configuration(tmp_path, refusing if number % 2 else missing, port)
        with running(controller, config) as process:
            first.append(answers(port, process, ANSWERS))
    assert [set(each) for each in first] == [{503}] * STARTS, first
    assert all(len(each) == ANSWERS for each in first)


@pytest.mark.slow
def test_controller_gets_ready_when_its_database_exists(tmp_path: Path) -> None:
    port = free_port()
    url = f"sqlite:///{tmp_path}/late.db"
    config = configuration(tmp_path, url, port)
    with running(ROOT / "tests" / "e2e" / "service_controller.py", config) as process:
        assert set(answers(port, process, ANSWERS)) == {503}
        Store(url).close()
        until = time.monotonic() + LONG
        while ask(port) != 200:
            assert time.monotonic() < until, "the replica did not get ready"
            time.sleep(0.01)


@pytest.mark.slow
def test_service_without_its_database_gives_no_answer_and_exits(tmp_path: Path) -> None:
    unused, port = free_ports(2)
    config = configuration(
        tmp_path,
        f"postgresql://user@127.0.0.1:{unused}/none",
        port,
        "[publisher_service]",
        f"metrics_port = {port}",
    )
    with running("-m", "pubsub_lib.service", "--config-file", config) as process:
        assert answers(port, process, 1) == []
        assert process.wait(LONG) == 4
        assert process.stderr is not None
        assert "127.0.0.1" in process.stderr.read()
