"""Computed tables: what Spark knows of them when it plans the next steps."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.spark.session import adapt
from pubsub_lib.audit.spark.settled import (
    fulfilling,
    hashed,
    kept,
    lookup,
    narrowed,
    partitioned,
    settled,
    single,
    together,
)
from tests.unit.audit.conftest import LITTLE, MUCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan(table: "DataFrame") -> str:
    return str(table._jdf.queryExecution().executedPlan().toString())


def test_little_data_is_grouped_and_joined_without_exchange(little: "SparkSession") -> None:
    assert single(little)
    rows = together(little.range(10).withColumn("group", F.col("id") % 3))
    table = settled(partitioned(rows, "group"))
    assert table.rdd.getNumPartitions() == 1
    most = table.unionByName(kept(table)).groupBy("group").agg(F.max("id").alias("most"))
    assert "Exchange" not in plan(most.orderBy("group"))
    assert [tuple(row) for row in most.orderBy("group").collect()] == [(0, 9), (1, 7), (2, 8)]


def test_empty_table_of_little_data_removes_the_steps_after_it(little: "SparkSession") -> None:
    rows = little.range(10)
    assert "LocalTableScan <empty>" in plan(rows.join(settled(rows.filter("id > 20")), "id"))
    assert kept(rows.filter("id > 20"), small=True).columns == ["id"]


def test_little_data_is_joined_without_sort_and_without_another_job(little: "SparkSession") -> None:
    rows, few = (settled(together(little.range(number))) for number in (10, 3))
    for other in (lookup(few), hashed(few)):
        planned = plan(rows.join(other, "id", "left"))
        assert "ShuffledHashJoin" in planned
        assert not any(step in planned for step in ("Exchange", "Sort", "Broadcast"))


def test_single_partition_is_not_shuffled_for_its_estimated_size(little: "SparkSession") -> None:
    """Spark multiplies the sizes of joined tables: here to 26 GB, of 1 row."""
    many = together(little.range(20_000))
    few = settled(many.join(hashed(many.filter("id = 7").withColumnRenamed("id", "same")), F.expr("id = same")))
    assert "Exchange" not in plan(few.join(lookup(many), "id", "left"))


def test_joined_single_partitions_are_joined_again_without_exchange(little: "SparkSession") -> None:
    """Spark does not take the result of an inner join for a single partition, so a second join would shuffle it."""
    rows, few = (settled(together(little.range(number).withColumn("n", F.col("id")))) for number in (10, 3))
    joined, other = rows.join(hashed(few.select("id")), "id"), hashed(few.select("n"))
    assert "Exchange" in plan(joined.join(other, "n")), "Spark has changed: together() is no longer needed"
    assert "Exchange" not in plan(together(joined).join(other, "n"))


def test_files_of_little_data_are_estimated_to_be_small(little: "SparkSession", tmp_path: Path) -> None:
    """All other estimates are products of theirs, and beyond 2^63 bytes a single partition would be shuffled."""
    path = str(tmp_path / "rows")
    little.range(1000).write.parquet(path)
    table = little.read.parquet(path)
    assert table._jdf.queryExecution().optimizedPlan().stats().sizeInBytes() <= 8


@pytest.mark.long
def test_little_table_is_computed_and_counted_by_one_job(little: "SparkSession") -> None:
    rows = together(little.range(10))
    scheduler = little.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    assert plan(settled(rows)) != plan(settled(rows.filter("id > 20")))
    assert scheduler.numTotalJobs() == before + 2


def test_much_data_is_joined_by_broadcast_or_sort(spark: "SparkSession") -> None:
    adapt(spark, MUCH)
    assert "BroadcastHashJoin" in plan(spark.range(10).join(lookup(spark.range(10)), "id"))
    assert hashed(rows := spark.range(10)) is rows


def test_much_data_keeps_its_partitions(spark: "SparkSession") -> None:
    adapt(spark, MUCH)
    rows = spark.range(10, numPartitions=3)
    assert not single(spark)
    assert together(rows).rdd.getNumPartitions() == settled(rows).rdd.getNumPartitions() == 3
    assert "Exchange hashpartitioning(id" in plan(partitioned(rows, "id"))
    assert kept(rows, small=True).storageLevel.useMemory


@pytest.mark.parametrize("size", [LITTLE, MUCH])
def test_fulfilled_conditions_are_found_while_the_table_is_computed(spark: "SparkSession", size: int) -> None:
    adapt(spark, size)
    conditions = {"odd": F.col("id") % 2 == 1, "late": F.col("id") > 20}
    table, found = fulfilling(spark.range(10), conditions)
    assert (table.count(), found) == (10, frozenset({"odd"}))
    assert fulfilling(spark.range(10).filter("id > 20"), conditions)[1] == frozenset()


def test_records_of_little_data_are_computed_once(little: "SparkSession") -> None:
    rows = narrowed(little.range(10, numPartitions=3).filter("id > 5"))
    assert "Range" not in plan(rows)
    assert (rows.count(), rows.rdd.getNumPartitions()) == (4, 1)
    adapt(little, MUCH)
    assert narrowed(rows) is rows
