"""The Spark session for small tables: the JVM optimizes less, because optimizing code would take most of the time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small_session() -> "tuple[SparkSession, bool]":
    """A session with two partitions, and whether it is new; a new one must be stopped. Raises ConfigError."""
    from pubsub_lib.audit.spark.session import QUICK_JVM, session  # most test processes need no pyspark

    options = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.extraJavaOptions": QUICK_JVM,
    }
    return session("local[2]", options=options)
