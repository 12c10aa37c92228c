"""The script: Ctrl-C while the library is still being imported, and what setup.cfg names."""

import configparser
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pubsub_service

ROOT = Path(__file__).resolve().parents[3]


def test_it_is_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    registry = configparser.ConfigParser()
    registry.read(ROOT / "setup.cfg")
    scripts = registry["options.entry_points"]["console_scripts"].splitlines()
    assert "publisher-service = pubsub_service:main" in scripts
    monkeypatch.setattr(sys, "argv", ["publisher-service", "--config-file", "/nowhere/net.conf"])
    assert pubsub_service.main() == 2
    assert "'/nowhere/net.conf' cannot be read" in capsys.readouterr().err


def test_ctrl_c_during_the_import_shows_no_traceback(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "pubsub_service", tmp_path / "pubsub_service")
    (tmp_path / "pubsub_lib").mkdir()
    signals = f"import os\nos.kill(os.getpid(), {int(signal.SIGINT)})\n"
    (tmp_path / "pubsub_lib" / "__init__.py").write_text(signals)  # a library in whose import the key is hit
    call = [sys.executable, "-c", "import sys, pubsub_service; sys.exit(pubsub_service.main())"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
