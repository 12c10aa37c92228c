"""The script: Ctrl-C while the library is still being imported, and the same program as ``python -m``."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CALL = [sys.executable, "-c", "import sys, pubsub_db; sys.exit(pubsub_db.main())"]


def run(
    *arguments: str, root: Path = ROOT, call: Sequence[str] = CALL, first: Sequence[Path] = ()
) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(map(str, (*first, root, ROOT / "drivers")))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([*call, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_it_is_the_command() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout[:10], done.stderr) == (0, "pubsub-db ", "")
    assert run("tabels").returncode == 2


def test_ctrl_c_during_the_import_shows_no_traceback(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "pubsub_db", tmp_path / "pubsub_db")
    (tmp_path / "pubsub_lib").mkdir()
    signals = f"import os\nos.kill(os.getpid(), {int(signal.SIGINT)})\n"
    (tmp_path / "pubsub_lib" / "__init__.py").write_text(signals)  # a library in whose import the key is hit
    done = run("tables", root=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_so_does_the_module(tmp_path: Path) -> None:
    (tmp_path / "cliff").mkdir()
    signals = f"import os\nos.kill(os.getpid(), {int(signal.SIGINT)})\n"
    (tmp_path / "cliff" / "__init__.py").write_text(signals)  # what the command is made with, and imports late
    module = [sys.executable, "-m", "pubsub_lib.cli"]
    done = run("tables", call=module, first=[tmp_path])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert run("--version", call=module).stdout[:10] == "pubsub-db "
