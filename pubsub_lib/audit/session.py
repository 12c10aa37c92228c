"""The Spark session of an audit, and the Java that it needs."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_home() -> str | None:
    """Where a Java stands: JAVA_HOME, or the one in PATH. Raises ConfigError when there is none."""
    home = os.environ.get("JAVA_HOME", "")
    if home:
        if not (Path(home) / "bin" / "java").exists():
            raise ConfigError(f"JAVA_HOME is {home}, and no bin/java is there; correct it or unset it")
        return home
    if shutil.which("java") is None:
        raise ConfigError(
            "the audit needs a Java of version 17 or newer; install one (on Debian: default-jre-headless)"
        )
    return None


def session(
    master: str = "local[*]", *, memory: str = "2g", quiet: bool = True, options: Mapping[str, str] | None = None
) -> "tuple[SparkSession, bool]":
    """A session for one audit, and whether it is new: then the caller stops it. Blocks for some seconds.

    Raises ConfigError without Java or pyspark. ``quiet``: no progress bar; ``options``: more of Spark's own settings.
    """
    java_home()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("the audit needs pyspark; install the extra: pip install 'pubsub-lib[audit]'") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(master)
        .appName("pubsub-audit")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false" if quiet else "true")
        .config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.adaptive.enabled", "true")
        # Groupings by a subset of the keys of a join need no exchange of their own.
        .config("spark.sql.requireAllClusterKeysForCoPartition", "false")
    )
    for name, value in (options or {}).items():
        builder = builder.config(name, value)
    running = SparkSession.getActiveSession()
    made = running if running is not None else builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made, running is None
