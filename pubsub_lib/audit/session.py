"""The Spark session of an audit."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pubsub_lib.audit.java import java
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    master: str = "local[*]", *, memory: str = "2g", quiet: bool = True, options: Mapping[str, str] | None = None
) -> "tuple[SparkSession, bool]":
    """A session for one audit, and whether it is new: then the caller stops it. Blocks for some seconds.

    Raises ConfigError without Java or pyspark. ``quiet``: no progress bar; ``options``: more of Spark's own settings.
    """
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
    if running is not None:
        return running, False
    with java():
        made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made, True
