"""Named failpoints: parsed strictly, act once, do nothing when unset."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub_lib import failpoints
from pubsub_lib.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "text", ["nowhere=kill", "writer.after_lock", "writer.after_lock=sleep", "writer.after_lock=kill@x"]
)
def test_unknown_names_actions_and_counts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=failpoints.VARIABLE):
        failpoints.parse(text)


def test_counts_down_and_acts_once() -> None:
    armed = failpoints.parse("writer.after_lock=raise@3, sync.during_delta=kill")
    assert set(armed) == {"writer.after_lock", "sync.during_delta"}
    point = armed["writer.after_lock"]
    point.reached("writer.after_lock")
    point.reached("writer.after_lock")
    with pytest.raises(failpoints.FailpointReached, match=r"writer\.after_lock"):
        point.reached("writer.after_lock")
    point.reached("writer.after_lock")


def test_unset_it_does_nothing() -> None:
    for name in failpoints.NAMES:
        failpoints.hit(name)


def test_kill_ends_the_process() -> None:
    code = "from pubsub_lib.failpoints import hit; hit('writer.after_lock'); print('alive')"
    environment = {**os.environ, failpoints.VARIABLE: "writer.after_lock=kill", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_stop_stops_the_calling_thread_at_the_failpoint() -> None:
    """A signal to the process is delivered to the main thread first, while another thread runs on."""
    code = """
import os, threading
from pubsub_lib.failpoints import hit

def run():
    hit('writer.after_lock')
    os.write(1, b'ran on')

threading.Thread(target=run).start()
os.read(0, 1)
"""
    environment = {**os.environ, failpoints.VARIABLE: "writer.after_lock=stop", "PYTHONPATH": str(ROOT)}
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert found is not None
            assert found.si_code == os.CLD_STOPPED
        finally:
            process.kill()
            output, _ = process.communicate()
        assert output == b""


def named_by_hits(source: str) -> set[str]:
    """Every string in the arguments of a call of ``hit``, for any form of import, also inside a condition."""
    return {
        text.value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and _called(call.func) == "hit"
        for argument in call.args
        for text in ast.walk(argument)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    }


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def killed_at(source: str) -> set[str]:
    """Every failpoint that an argument of a call arms with a kill; strings elsewhere do not count."""
    return {
        found[1]
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        for argument in call.args
        for text in ast.walk(argument)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        if (found := re.fullmatch(r"(\w+\.\w+)=kill(?:@\d+)?", text.value))
    }


def test_named_by_hits_finds_names_in_conditions_and_module_calls() -> None:
    assert named_by_hits('hit("a.b" if full else "c.d"); other("e.f")') == {"a.b", "c.d"}
    assert named_by_hits('failpoints.hit("a.b"); pubsub_lib.failpoints.hit("c.d")') == {"a.b", "c.d"}


def test_killed_at_ignores_other_strings_and_actions() -> None:
    assert killed_at('"""a.b=kill"""\nx = "c.d=kill"\nf("e.f", "g.h=stop", "i.j=kill@3", ["k.l=kill"])') == {
        "i.j",
        "k.l",
    }


def test_code_hits_exactly_the_known_failpoints() -> None:
    used = set()
    for folder in ("pubsub_lib", "drivers", "pubsub_pytest"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= named_by_hits(path.read_text())
    assert used == failpoints.NAMES


def test_every_failpoint_has_a_test_that_kills_a_process() -> None:
    killed = set()
    # The audit's follower is killed in its own unit test, because each run of Spark takes long, and an append to a lake
    # in its own, because it needs no other process.
    audit = ROOT / "tests" / "unit" / "audit"
    of_audit = [audit / "stream" / "test_loop.py", audit / "lake" / "test_folder.py"]
    for path in [*(ROOT / "tests" / "e2e").glob("test_*kill*.py"), *of_audit]:
        killed |= killed_at(path.read_text())
    assert failpoints.NAMES - killed == set(), "kill a process there, in tests/e2e/test_…kill….py"
