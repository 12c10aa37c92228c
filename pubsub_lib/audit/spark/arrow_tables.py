"""Small tables of the driver process: for joins with the tables of the journals, and as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub_lib.audit.spark.settled import together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def small(spark: "SparkSession", rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> "DataFrame":
    """These rows as a Spark table. They go to the JVM as Arrow and are part of the plan. A list of tuples would instead
    become a job for Python workers, which a cluster need not have.
    """
    return together(spark.createDataFrame(pa.Table.from_pylist([dict(row) for row in rows], schema=schema)))


def save(table: "DataFrame", folder: Path, by: str = "") -> None:
    """Collect a table and write it as Parquet into a new folder; ``by``: a column whose values become folders in it.

    For few rows: Spark's own writer takes three times as long, because it starts a program (``chmod``) for each file
    and folder. Raises OSError and Spark's errors.
    """
    rows = table.toArrow()
    folder.mkdir(parents=True)
    if not by:
        _write(rows, folder)
        return
    for value in rows[by].unique().to_pylist():
        _write(rows.filter(pc.equal(rows[by], value)).drop_columns([by]), folder / f"{by}={value}")


def _write(rows: pa.Table, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "part-0.parquet").open(
        "wb"
    ) as file:  # its errors have a text, those of Arrow's own files not always
        pq.write_table(rows, file)
