"""Conversion between local paths and Spark's addresses. Spark may take a bare path for one in HDFS."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit


def to_write(path: Path) -> str:
    """The address for Spark to write a table or a checkpoint. Spark expands no wildcards in it."""
    return f"file://{path.resolve()}"


def to_read(path: Path) -> str:
    """The address for Spark to read from. Characters that Spark would take for wildcards are escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", to_write(path))


def path_of(named: str) -> Path:
    """The path of a file that Spark reports (in ``_metadata.file_path`` or ``inputFiles()``)."""
    return Path(unquote(urlsplit(named).path))
