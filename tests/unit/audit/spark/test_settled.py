"""Computed tables: what Spark knows of them when it plans the next steps."""

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
