"""The user's cache folder: files that save time and may be removed at any time."""

import os
from pathlib import Path

from pubsub_lib.errors import ConfigError


def cache_folder() -> Path:
    """``pubsub_lib`` in ``XDG_CACHE_HOME`` (default: ``~/.cache``). It need not exist.

    Raises ConfigError when the variable is not set and this user has no home folder.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(named) if named else Path.home() / ".cache") / "pubsub_lib"
    except RuntimeError:
        raise ConfigError("this user has no home folder for a cache; set XDG_CACHE_HOME to a folder") from None
