"""Killing a process tree ends all its processes, and returned ports are free."""

import itertools
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from _processes import alive, children, free_port, free_ports, kill_tree, pause, poll

# A parent, a child, and a grandchild in a separate session, as a database server's backends are.
_FAMILY = """
import subprocess, sys
grandchild = [sys.executable, "-c", "print(1, flush=True); input()"]
child = f"import subprocess; subprocess.run({grandchild!r}, start_new_session=True)"
subprocess.run([sys.executable, "-c", child])
"""


def test_kill_tree_reaches_descendants_in_other_sessions() -> None:
    with subprocess.Popen([sys.executable, "-c", _FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as family:
        assert family.stdout is not None
        family.stdout.readline()  # the grandchild runs
        below = children(family.pid)
        assert len(below) == 2
        kill_tree(family.pid)
        assert not any(alive(pid) for pid in below)
        assert family.wait() == -9


def test_kill_tree_of_one_that_ended_does_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kill_tree(ended.pid)


def test_paused_process_has_no_thread_that_runs_on() -> None:
    code = (
        "import threading\n"
        "turns = [0, 0]\n"
        "def turn(number):\n"
        "    while True: turns[number] += 1\n"
        "for number in (0, 1): threading.Thread(target=turn, args=(number,), daemon=True).start()\n"
        "while not all(turns): pass\n"
        "print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        assert pause(busy.pid)
        used = Path(f"/proc/{busy.pid}/schedstat").read_text()
        assert pause(busy.pid)
        assert Path(f"/proc/{busy.pid}/schedstat").read_text() == used
        busy.kill()
    assert not pause(busy.pid)


def test_free_port_is_below_the_range_of_outgoing_connections() -> None:
    port = free_port()
    assert port < 32_768
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))


def test_ports_of_one_call_differ() -> None:
    assert len(set(free_ports(300))) == 300


def test_free_port_returns_no_port_twice_within_a_few_hundred_calls() -> None:
    assert len({free_port() for _ in range(300)}) == 300


def test_parallel_test_processes_take_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        taken += [{free_port() for _ in range(500)}]
    assert set.isdisjoint(*taken[:2])
    assert set.isdisjoint(*taken[1:])
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert 15_000 <= free_port() < 32_000


def test_poll_gives_up_at_its_deadline() -> None:
    asked = itertools.count(1)
    assert not poll(lambda: next(asked) < 0, timeout=0.1)
    assert next(asked) > 2
    assert poll(lambda: True, timeout=0)


@pytest.mark.parametrize("times", [1, 3])
def test_poll_asks_until_yes(times: int) -> None:
    answers = iter([False] * (times - 1) + [True])
    assert poll(lambda: next(answers), timeout=10)
