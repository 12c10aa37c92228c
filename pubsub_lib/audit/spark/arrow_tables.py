"""Small tables made in the driver process, for joins with the tables of the journals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def small(spark: "SparkSession", rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> "DataFrame":
    """These rows as a Spark table. They go to the JVM as Arrow and are part of the plan. A list of tuples would instead
    become a job for Python workers, which a cluster need not have.
    """
    return spark.createDataFrame(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
