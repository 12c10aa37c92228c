"""Percentiles: nearest ranks of latencies that are cut to three digits."""

from typing import TYPE_CHECKING

from pubsub_lib.audit.latency import counted, percentiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_nearest_ranks_by_replica_and_of_all(spark: "SparkSession") -> None:
    values = [("d", "a", "hop", value) for value in range(1, 1001)]  # each is its own rank
    values += [("d", "b", "hop", value) for value in (-1_234_567, -999, -1, 0)]
    values += [("d", "c", "hop", 1_234_567)]
    given = spark.createDataFrame(values, "domain string, name string, hop string, value bigint")
    found = {
        row["name"]: tuple(row[name] for name in ("count", "negative", "p50", "p95", "p99", "p999", "max"))
        for row in percentiles(counted(given)).collect()
    }
    assert found == {
        "a": (1000, 0, 500, 950, 990, 999, 1000),
        "b": (4, 3, -999, 0, 0, 0, 0),
        "c": (1, 0, 1_230_000, 1_230_000, 1_230_000, 1_230_000, 1_234_567),
        "": (1005, 3, 499, 951, 991, 1000, 1_234_567),
    }
