"""A change lost before a reconnection is repaired by one hello request, and not only after ``max_idle_time``.

``tools/bench reconnection`` measures this 20 times; here it runs a few times, with longer limits for a busy machine.
Without ``on_connected``, the change came 19 s after the reconnection, and one start hello in ten arrived.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOM = "6"


def measured(*arguments: str) -> str:
    """Return the output of the command; its exit status shows whether every limit was kept."""
    command = [sys.executable, str(ROOT / "tools" / "bench_app.py"), "reconnection", "--room", ROOM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.quick_variants(1)
@pytest.mark.slow
@pytest.mark.parametrize("what", ["cut", "restart"])
def test_change_lost_before_a_reconnection_is_repaired_by_a_hello_request(what: str) -> None:
    assert "(median of 3; " in measured("--only", what, "--count", "3", "--cut", "1")


def test_start_hello_reaches_an_earlier_listener() -> None:
    assert "received by 5 of 5" in measured("--only", "hello", "--count", "5")
