"""``_bootstrap.py EXTRA``: create ``.venv`` in the project and install the project there with one extra.

Runs on any Python of at least 3.11 without other packages. A stamp of all inputs of the installation makes the second
call fast; a lock allows two commands to set up at the same time.
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
CONSTRAINTS = Path("etc", "constraints.txt")
"""The tested versions, by tools/lock. A project without the file is installed with the newest allowed versions."""


class SetUpError(Exception):
    """One sentence for the user: what is missing, and what to do."""


def stamp(extra: str) -> str:
    """A digest of all inputs of the environment."""
    found = hashlib.sha256(f"{extra} {platform.python_version()} {sys.base_prefix} {ROOT}".encode())
    for name in DECIDES:
        found.update((ROOT / name).read_bytes())
    if (ROOT / CONSTRAINTS).exists():
        found.update((ROOT / CONSTRAINTS).read_bytes())
    return found.hexdigest()


def run(what: str, command: Sequence[str | Path]) -> None:
    """Run a command without output. If it fails, print its whole output and raise SetUpError."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SetUpError(f"{what} failed with status {done.returncode}; see its output above.")


def make_venv() -> None:
    """Create a new ``.venv``. On Debian ``ensurepip`` is in a separate package, which root may install."""
    if importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise SetUpError(f"This Python has no ensurepip; install the package {package} and call again.")
        run("apt-get update", ["apt-get", "update", "-q"])
        run(f"apt-get install {package}", ["apt-get", "install", "-qy", "--no-install-recommends", package])
    if VENV.exists():
        shutil.rmtree(VENV)
    run("Making .venv", [sys.executable, "-m", "venv", VENV])


def install(python: Path, project: str) -> None:
    """Install the project with the tested versions. When they are not available (another Python or platform, a mirror
    without them), print that and install the newest allowed ones.
    """
    command: list[str | Path] = [python, "-m", "pip", "install", "-q"]
    if (ROOT / CONSTRAINTS).exists():
        try:
            run("pip install", [*command, "-c", ROOT / CONSTRAINTS, "-e", project])
            return
        except SetUpError:
            note = f"The versions of {CONSTRAINTS} cannot be installed here (see above); installing the newest ones …"
            print(note, file=sys.stderr, flush=True)
    run("pip install", [*command, "-e", project])


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
    install(python, f"{ROOT}[{extra}]")
    shutil.rmtree(VENV / "cache", ignore_errors=True)
    marker.write_text(wanted)


def main() -> int:
    """Exit status 0, or 1 with one sentence on standard error."""
    if len(sys.argv) != 2:
        print("usage: _bootstrap.py EXTRA", file=sys.stderr)
        return 2
    lock = os.open(ROOT, os.O_RDONLY)  # lock the folder itself, so that no lock file remains; the exit releases it
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        set_up(sys.argv[1])
    except SetUpError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
