"""The helpers of these tests: a process that gives no answer ends the wait for it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import service_host

SILENT = """
import time
def commits():
    print("ready", flush=True)
    time.sleep(3600)
commits()
"""


def test_a_process_without_an_answer_is_aborted_and_shows_where_it_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "stderr").open("w") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", SILENT], stdout=subprocess.PIPE, stderr=complaints, text=True
        )
    with process:
        assert service_host.answer(process) == "ready\n"
        monkeypatch.setattr(service_host, "LONG", 1.0)  # also the time for its end
        with pytest.raises(AssertionError, match=f"the worker ended with {-signal.SIGABRT}"):
            service_host.done(process)
    assert "in commits" in (tmp_path / "stderr").read_text()
