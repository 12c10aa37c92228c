"""The folder of what was downloaded, and the programs that download: nothing is installed in the system.

The folder is ``pubsub_lib/bench-e2e`` in ``XDG_CACHE_HOME`` (default: ``~/.cache``); it may be removed at any time.
``tools/bench`` sets that variable to a folder of its environment, ``.venv/cache``.
"""

import errno
import importlib
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _bench.e2e.side import LeftOutError
from pubsub_lib.command.cache_folder import cache_folder

TIMEOUT = 300.0
"""Maximum number of seconds of one download."""


def cache() -> Path:
    """The folder of everything that was downloaded."""
    return cache_folder() / "bench-e2e"


def client(requirement: str, module: str) -> tuple[Any, str]:
    """Import a client library of PyPI and return it with its name and version; downloaded at the first time. Raises
    LeftOutError.
    """
    folder = cache() / "clients" / module
    if not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target"]
        with complete(folder) as made:
            output([*install, str(made), requirement], f"the client {requirement} cannot be downloaded from PyPI")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # at the end: the project's own packages come first
    found = [each.version for each in importlib.metadata.distributions(path=[str(folder)], name=requirement)]
    return importlib.import_module(module), " ".join([requirement, *found[:1]])


@contextmanager
def complete(folder: Path) -> Iterator[Path]:
    """A new folder which gets its name when the block has succeeded, and is removed when the block fails.

    Of two processes that make the same folder, the first one to complete it keeps it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        yield made
        try:
            made.rename(folder)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def output(command: Sequence[str], failure: str, folder: Path | None = None) -> str:
    """The output of a program. Raises LeftOutError with ``failure`` and the program's last line."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LeftOutError(f"{failure}: {error}") from error
    if done.returncode != 0:
        errors = [line for line in done.stderr.strip().splitlines() if not line.startswith("W:")]
        raise LeftOutError(f"{failure}: {errors[-1] if errors else 'no error was printed'}")
    return done.stdout
