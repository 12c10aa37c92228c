"""What was lost before a reconnection is there one question later, and not one ``max_idle_time`` later.

``tools/reconnection.py`` measures it 20 times; here it runs a few times, with room for a busy machine. Without
``on_connected`` the change came 19 s after the reconnection, and one start hello in ten arrived.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOM = "6"


def measured(*arguments: str) -> str:
    """What the command prints; its exit status says whether every bound held."""
    command = [sys.executable, str(ROOT / "tools" / "reconnection.py"), "--room", ROOM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", ["cut", "restart"])
def test_a_change_lost_before_a_reconnection_is_repaired_by_the_question_that_it_causes(what: str) -> None:
    assert "(median of 3; " in measured("--only", what, "--count", "3", "--cut", "1")


def test_a_hello_at_the_start_reaches_a_listener_that_was_there_before() -> None:
    assert "heard by 5 of 5" in measured("--only", "hello", "--count", "5")
