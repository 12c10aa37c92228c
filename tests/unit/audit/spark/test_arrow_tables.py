"""Small tables need no Python on the workers of a cluster."""

from typing import TYPE_CHECKING

import pyarrow as pa

from pubsub_lib.audit.spark.arrow_tables import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_part_of_the_plan(spark: "SparkSession") -> None:
    schema = pa.schema([("index", pa.int64()), ("key", pa.string())])
    table = small(spark, [{"index": 1, "key": "it's"}, {"index": 2, "key": None}], schema)
    assert [tuple(row) for row in table.collect()] == [(1, "it's"), (2, None)]
    plan = table._jdf.queryExecution().toString()
    assert "LocalTableScan" in plan
    assert "RDD" not in plan, "Python workers would have to compute the table"
