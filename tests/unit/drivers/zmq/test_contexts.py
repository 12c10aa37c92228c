"""With few free files, a start fails with one clear error, and a later one succeeds. ZeroMQ would end the process."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, resource, sys, threading
from pubsub_lib.api import DriverSettings
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import TransportError
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.multiproc.driver import IpcDriver

kind, folder = sys.argv[1:]
place = f"ipc://{folder}/p"

def start():
    if kind == "worker":
        made = IpcDriver.publisher(DriverSettings(Limits(), bind_address=f"ipc://{folder}/w"))
        made.initialize(lambda asked: None, lambda: None)
    elif kind == "subscriber":
        made = ZmqDriver.subscriber(DriverSettings(Limits()))
        made.initialize(lambda envelope: None, lambda: None)
        made.daemonize()
    else:
        made = ZmqDriver.publisher(DriverSettings(Limits(), bind_address=place, keys=kind == "keys"))
        made.initialize(lambda asked: None, lambda: None)
    return made

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
used = max(map(int, os.listdir("/proc/self/fd")))
while os.open("/dev/null", os.O_RDONLY) < used:
    pass
refused = 0
for free in range(1, 60, 4):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2 + free, hard))
    try:
        start().close()
    except TransportError as error:
        refused += 1
        assert "limit of open files" in str(error) or "cannot be opened (Too many open files)" in str(error), error
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
start().close()
print(refused)
"""


@pytest.mark.parametrize("kind", ["plain", "keys", "subscriber", "worker"])
def test_start_without_free_files_is_refused_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 8 <= int(done.stdout) <= 12
