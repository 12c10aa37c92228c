"""The script: Ctrl-C while the library is still being imported, and the same program as ``python -m``."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CALL = [sys.executable, "-c", "import sys, pubsub_db; sys.exit(pubsub_db.main())"]


def run(*arguments: str, root: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(ROOT / "drivers")])}
    return subprocess.run([*CALL, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False)


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
