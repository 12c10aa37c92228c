"""A tool that is ended by SIGTERM leaves no child process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _processes import alive, children, poll

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 300.0
COMMANDS = {
    "reconnection": ("tools/bench_app.py reconnection --only cut --count 1000", 1),
    "mutate": ("tools/mutate_app.py tracker --jobs 1", 2),
    "settle": ("tools/bench_app.py settle --replicas 2 --topics 10 --idle 1000", 2),
    "idle_cost": ("tools/bench_app.py idle-cost --topics 10 --subscribers 1 --seconds 1000", 1),
    "stress": ("tools/bench_app.py stress --database sqlite --writers 2 --seconds 1000", 4),
    "simulate": ("tools/_simulate.py --seeds 100000 --jobs 2", 2),
}
"""Command line, and the number of its children when all are started."""
QUICK = ("idle_cost", "simulate")
"""Those that are not left to ``tools/test --all``: one with programs, one with forked functions."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in COMMANDS]
)
def test_sigterm_ends_a_tool_with_its_children(name: str, tmp_path: Path) -> None:
    line, number = COMMANDS[name]
    folders = (str(ROOT), str(ROOT / "drivers"), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, *line.split()], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as tool:
        started: list[int] = []
        try:
            assert poll(lambda: len(children(tool.pid)) >= number, PATIENCE)
            started = children(tool.pid)
            tool.send_signal(signal.SIGTERM)
            out, _ = tool.communicate(timeout=PATIENCE)
            print(out.decode())
            assert poll(lambda: not any(map(alive, started)), 5.0)
            assert tool.returncode == 130
            assert b": interrupted; every process was stopped" in out
            assert list(tmp_path.iterdir()) == []
        finally:
            for each in (tool.pid, *started):
                if alive(each):
                    os.kill(each, signal.SIGKILL)
