"""Makes the archive of Spark's classes: an audit of generated journals, whose JVM records all classes that it loads.

The audit runs in a process of its own, so the archive holds the classes of a real ``pubsub-audit run``.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pubsub_lib.audit.prepare import sample
from pubsub_lib.audit.spark import class_archive
from pubsub_lib.audit.spark.java import Java, java
from pubsub_lib.errors import ConfigError, PubSubError

PATIENCE: Final = 900.0
"""Maximum number of seconds of the audit, and of the check of the archive."""
_VERDICTS: Final = 63
"""The highest exit code of an audit that gave verdicts."""


class Archive(msgspec.Struct, frozen=True):
    """The archive for the present Java and Spark. ``made``: whether this call made it, in ``seconds``."""

    file: str
    bytes: int
    made: bool
    seconds: float

    def text(self) -> str:
        """One sentence for a user."""
        size = f"{self.bytes / 1e6:.0f} MB"
        if not self.made:
            return f"{self.file} exists already ({size}); small audits start from it"
        return f"{self.file} was made in {self.seconds:.0f} s ({size}); small audits start from it"


def prepare() -> Archive:
    """Make the archive unless it exists. Blocks for the time of an audit and some seconds.

    Raises ConfigError without Java or pyspark, and when the archive cannot be written; PubSubError when the audit or
    the check of the archive fails. Leaves no part of an archive, unless the process is killed.
    """
    try:
        import pyspark  # noqa: F401 - the archive's name depends on it
    except ImportError as error:
        raise ConfigError("the archive needs pyspark; install the extra: pip install 'pubsub-lib[audit]'") from error
    with java() as chosen:
        found = class_archive.find(chosen.text)
        if found is not None:
            return Archive(str(found), found.stat().st_size, made=False, seconds=0.0)
        try:
            return _make(chosen)
        except OSError as error:
            raise ConfigError(
                f"the archive of classes cannot be written ({error.strerror}: {error.filename}); free disk space, or "
                "set XDG_CACHE_HOME or TMPDIR to other folders"
            ) from error


def _make(chosen: Java) -> Archive:
    began = time.monotonic()
    new = class_archive.unfinished(chosen.text)
    for each in class_archive.remains(chosen.text):
        each.unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="pubsub-prepare-") as scratch:
            _record(new, Path(scratch), chosen.program)
        _check(new)
        file = class_archive.keep(new, chosen.text)
    finally:
        new.unlink(missing_ok=True)
    return Archive(str(file), file.stat().st_size, made=True, seconds=time.monotonic() - began)


def _record(new: Path, scratch: Path, java_program: str) -> None:
    """Audit the generated journals with a JVM that writes ``new`` when it ends."""
    _require_base_archive(java_program)
    journals = scratch / "journals"
    journals.mkdir()
    sample.write(journals)
    command = [sys.executable, "-m", "pubsub_lib.audit.main", "run", str(journals), "--out", str(scratch / "out")]
    # The folder of the cache is another one: the JVM records no classes that come from an archive.
    status, output = _finished(command, class_archive.recording(new), {"XDG_CACHE_HOME": str(scratch / "cache")})
    if not 0 <= status <= _VERDICTS or not (scratch / "out" / "delivery").is_dir():
        raise PubSubError(f"the audit of generated journals failed with exit code {status}: {_last_line(output)}")
    if not new.exists():
        raise PubSubError(
            f"Java wrote no archive of classes to {new}: {_last_line(output)}; free disk space, and unset "
            "SPARK_CONF_DIR and HADOOP_CONF_DIR if they name a folder with files"
        )


def _require_base_archive(program: str) -> None:
    """Raises ConfigError for a Java without an archive of its own classes, on which the new one would build."""
    done = subprocess.run([program, "-Xshare:on", "-version"], capture_output=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise ConfigError(
            f"{program} has no archive of its own classes, which the new one builds on; install a system Java, such as "
            "Debian's default-jre-headless, or audit without the archive"
        )


def _check(new: Path) -> None:
    """Let a JVM check the whole archive: it is incomplete when the JVM that wrote it was killed."""
    from pyspark.find_spark_home import _find_spark_home as spark_home

    command = [str(Path(spark_home()) / "bin" / "spark-submit"), "--version"]
    status, output = _finished(command, class_archive.checking(new), {})
    if status != 0:
        raise PubSubError(f"Java cannot use the archive of classes that it made: {_last_line(output)}")


def _finished(command: list[str], of_java: str, more: Mapping[str, str]) -> tuple[int, str]:
    """The exit status and the output of a command and of its JVM. The JVM ends after the command: it closes the pipe of
    the output last. An exception, for example an interrupt, ends both: the JVM would still write the archive.
    """
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {of_java}".strip()
    with subprocess.Popen(
        command, env={**os.environ, **more, "SPARK_SUBMIT_OPTS": options}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise PubSubError(
                f"the audit of generated journals did not end in {PATIENCE:.0f} s; run it again"
            ) from error
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output.decode(errors="replace")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
