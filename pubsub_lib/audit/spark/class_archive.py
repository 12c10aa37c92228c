"""The archive of Spark's classes, from which the JVM of a small audit starts (class data sharing of Java).

Without it the JVM of each audit reads, checks and links some 16,000 classes. The archive depends on the Java, on
Spark and on its class path, so its name holds a hash of them. The JVM checks the content, and does not use an archive
of another Java or of changed jars. It does not check the size: a truncated file would end it with SIGBUS. So the name
also holds the size, and a file of another size is not used.
"""

import hashlib
import os
import time
from pathlib import Path
from typing import Final

from pubsub_lib.command.cache_folder import cache_folder
from pubsub_lib.errors import ConfigError

_SUFFIX: Final = ".jsa"
_UNFINISHED: Final = ".new"
_OLD: Final = 3600.0
"""Seconds after which no process still writes an archive."""
_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
"""Environment variables by which Spark's launcher adds to the class path."""
_QUIET: Final = "-Xlog:cds*=off -Xlog:class+path*=off"
"""The JVM would print to stdout that it does not use an archive."""


def find(java: str) -> Path | None:
    """The archive for the installed Spark and the Java that prints ``java`` as its version, if there is a whole one.

    Looks at the names and sizes of Spark's jars, which takes some milliseconds.
    """
    try:
        found = cache_folder().glob(f"{_name(java)}-*{_SUFFIX}")
    except (ConfigError, OSError):
        return None  # no home folder, or a Spark without the usual folder of jars
    return next((path for path in found if _whole(path)), None)


def options(java: str) -> str:
    """The JVM options that use the archive of :func:`find`; "" without one."""
    path = find(java)
    if path is None:
        return ""
    return f"-XX:SharedArchiveFile={_quoted(path)} -Xshare:auto -XX:+VerifySharedSpaces {_QUIET}"


def recording(path: Path) -> str:
    """The JVM options that write an archive of all loaded classes to ``path`` when the JVM ends."""
    return f"-XX:ArchiveClassesAtExit={_quoted(path)} {_QUIET}"


def checking(path: Path) -> str:
    """The JVM options with which a JVM ends with an error when it cannot use this archive."""
    return f"-XX:SharedArchiveFile={_quoted(path)} -Xshare:on -XX:+VerifySharedSpaces"


def unfinished(java: str) -> Path:
    """Where this process may write an archive before :func:`keep`. Creates the folder. Raises ConfigError, OSError."""
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{_name(java)}.{os.getpid()}{_UNFINISHED}"


def remains(java: str) -> list[Path]:
    """Files of no use: parts that a killed process left, and truncated archives for this Java and Spark."""
    folder = cache_folder()
    parts = [path for path in folder.glob(f"*{_UNFINISHED}") if time.time() - path.stat().st_mtime > _OLD]
    return parts + [path for path in folder.glob(f"{_name(java)}-*{_SUFFIX}") if not _whole(path)]


def keep(made: Path, java: str) -> Path:
    """Give a complete archive its name, by an atomic rename. Raises OSError."""
    return made.rename(made.with_name(f"{_name(java)}-{made.stat().st_size}{_SUFFIX}"))


def _name(java: str) -> str:
    from pyspark import __version__ as version
    from pyspark.find_spark_home import _find_spark_home as spark_home

    jars = Path(spark_home()) / "jars"
    with os.scandir(jars) as entries:
        files = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in entries)
    more = [os.environ.get(name, "") for name in _CLASS_PATH]
    key = hashlib.sha256(repr((java, version, str(jars), files, more)).encode()).hexdigest()
    return f"spark-classes-{key[:16]}"


def _whole(path: Path) -> bool:
    try:
        return path.stem.endswith(f"-{path.stat().st_size}") and os.access(path, os.R_OK)
    except OSError:
        return False


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
