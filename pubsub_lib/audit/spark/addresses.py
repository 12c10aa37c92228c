"""Local paths as Spark takes and gives them. A bare path may mean HDFS."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit


def to_write(path: Path) -> str:
    """The address at which Spark writes, and keeps a checkpoint: taken as it stands."""
    return f"file://{path.resolve()}"


def to_read(path: Path) -> str:
    """The address from which Spark reads: there it would take some characters for wildcards."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", to_write(path))


def path_of(named: str) -> Path:
    """The path of a file that Spark names (in ``_metadata.file_path``, in ``inputFiles()``)."""
    return Path(unquote(urlsplit(named).path))
