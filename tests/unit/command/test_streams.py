"""Commands that were started with closed streams, or whose output cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BEGIN = "import sys\nfrom pubsub_lib.command import streams\nstreams.replace_closed()\n"


def run(script: str, redirection: str) -> "subprocess.CompletedProcess[str]":
    """The script, started by a shell that redirects its streams."""
    command = [sys.executable, "-c", BEGIN + script]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirection", "script"),
    [
        (">&-", "print('lost', flush=True)"),
        ("<&-", "sys.stdin.read()"),
    ],
)
def test_a_closed_stream_fails_when_it_is_used(redirection: str, script: str) -> None:
    script = f"try:\n    {script}\nexcept OSError:\n    print('refused', file=sys.stderr)\n"
    done = run(script + "streams.discard_unwritable()\n", redirection)
    assert (done.returncode, done.stderr) == (0, "refused\n")


def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    done = run("import os\nprint(os.open('/dev/null', os.O_RDONLY))\n", "<&- 2>&-")
    assert int(done.stdout) > 2


@pytest.mark.parametrize("redirection", [">/dev/full", ">/dev/full 2>&1", ">&- 2>&-"])
def test_exit_reports_no_error_for_unwritable_streams(redirection: str) -> None:
    script = "try:\n    print('lost')\nexcept OSError:\n    pass\nstreams.discard_unwritable()\nsys.exit(3)\n"
    done = run(script, redirection)
    assert (done.returncode, done.stderr) == (3, "")
