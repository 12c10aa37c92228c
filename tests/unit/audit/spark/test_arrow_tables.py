"""Small tables need no Python on the workers of a cluster, and are written as Spark would write them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.spark.arrow_tables import save, small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_part_of_the_plan(spark: "SparkSession") -> None:
    schema = pa.schema([("index", pa.int64()), ("key", pa.string())])
    table = small(spark, [{"index": 1, "key": "it's"}, {"index": 2, "key": None}], schema)
    assert [tuple(row) for row in table.collect()] == [(1, "it's"), (2, None)]
    plan = table._jdf.queryExecution().toString()
    assert "LocalTableScan" in plan
    assert "RDD" not in plan, "Python workers would have to compute the table"


def test_rows_of_little_data_are_one_partition(little: "SparkSession") -> None:
    rows = [{"index": number} for number in range(100)]
    table = small(little, rows, pa.schema([("index", pa.int64())]))
    plan = table.groupBy("index").count()._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan


@pytest.mark.parametrize("by", ["", "verdict"])
@pytest.mark.parametrize("number", [0, 5])
def test_saved_table_is_that_of_sparks_own_writer(spark: "SparkSession", tmp_path: Path, by: str, number: int) -> None:
    table = spark.range(number).selectExpr(
        "id", "cast(id as int) n", "if(id = 1, null, 'it''s') text", "id > 2 late", "id / 2 half",
        "array(id) many", "if(id < 3, 'lost', 'late') verdict",
    )  # fmt: skip
    save(table, tmp_path / "ours", by)
    writer = table.coalesce(1).write
    (writer.partitionBy(by) if by else writer).parquet(f"file://{tmp_path / 'spark'}")
    read = [pq.read_table(tmp_path / name) for name in ("ours", "spark")] if number or not by else [pa.table({})] * 2
    assert [field.type for field in read[0].schema] == [field.type for field in read[1].schema]
    assert read[0].column_names == read[1].column_names
    if number:
        assert read[0].sort_by("id").to_pylist() == read[1].sort_by("id").to_pylist()
    folders = {str(each.parent.relative_to(tmp_path / "ours")) for each in (tmp_path / "ours").rglob("*.parquet")}
    assert folders == ({"."} if not by else {"verdict=lost", "verdict=late"} if number else set())
