"""``_bootstrap.py EXTRA``: make ``.venv`` in the project and install the project there with one extra.

Runs on any Python of at least 3.11 with nothing installed. A stamp keyed by everything that decides what is
installed makes the second call quick; a lock lets two commands set up at the same time.
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
DECIDES = ("pyproject.toml", "setup.cfg")


class SetUpError(Exception):
    """One sentence for the user: what is missing, and the way out."""


def stamp(extra: str) -> str:
    """What the environment was made from."""
    found = hashlib.sha256(f"{extra} {platform.python_version()} {sys.base_prefix} {ROOT}".encode())
    for name in DECIDES:
        found.update((ROOT / name).read_bytes())
    return found.hexdigest()


def run(what: str, command: Sequence[str | Path]) -> None:
    """Run a command quietly; its whole output and one sentence if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SetUpError(f"{what} failed with status {done.returncode}; its output stands above.")


def make_venv() -> None:
    """A fresh ``.venv``; on Debian its ``ensurepip`` is a package of its own, which root may install."""
    if importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise SetUpError(f"This Python has no ensurepip; install the package {package} and call again.")
        run("apt-get update", ["apt-get", "update", "-q"])
        run(f"apt-get install {package}", ["apt-get", "install", "-qy", "--no-install-recommends", package])
    if VENV.exists():
        shutil.rmtree(VENV)
    run("Making .venv", [sys.executable, "-m", "venv", VENV])


def set_up(extra: str) -> None:
    """Bring ``.venv`` up to date."""
    marker = VENV / f"pubsub-{extra}.stamp"
    wanted = stamp(extra)
    if marker.exists() and marker.read_text() == wanted:
        return
    note = f"Setting up .venv (once, a minute or a few): the project with its extra '{extra}' …"
    print(note, file=sys.stderr, flush=True)
    python = VENV / "bin" / "python"
    base = VENV / "base.stamp"
    if not base.exists() or base.read_text() != stamp(""):
        make_venv()
        base.write_text(stamp(""))
    run("pip install", [python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[{extra}]"])
    shutil.rmtree(VENV / "cache", ignore_errors=True)
    marker.write_text(wanted)


def main() -> int:
    """Exit status 0, or 1 with one sentence on standard error."""
    if len(sys.argv) != 2:
        print("usage: _bootstrap.py EXTRA", file=sys.stderr)
        return 2
    lock = os.open(ROOT, os.O_RDONLY)  # the folder itself, so that no lock file lies about; freed at our end
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        set_up(sys.argv[1])
    except SetUpError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
