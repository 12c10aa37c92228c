"""Runs a function in a process of its own: what it measures of the memory is not that of other tests."""

import os
import subprocess
import sys
from collections.abc import Callable

from tests.unit.drivers.zmq.world import ROOT


def must_pass_alone(function: Callable[[], None]) -> str:
    """Call a function of a module of tests in a new process. Returns what it wrote to stderr."""
    name = function.__name__
    done = subprocess.run(
        [sys.executable, "-c", f"from {function.__module__} import {name}; {name}()"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr
