"""The records of one message or object, hop by hop: what journals say of an anomaly (docs/audit.md, "The page")."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import POINT
from pubsub_lib.audit.spark.arrow_tables import small

WITH_TRAIL: Final = 5
"""Anomalies of each kind that get a trail."""
RECORDS: Final = 24
"""Records of a trail that are shown: the first of every stage, then by time."""
_STAGES: Final = ("committed", "handed", "taken", "sent", "applied")
_SHOWN: Final = (
    "side", "name", "host", "run", "number", "kind", "outcome", "cause", "wall", "uuid", "sequence", "position",
    "version",
)  # fmt: skip
_NAMES: Final = ("domain", "name", "uuid", "topic", "sequence", "position", "nonce", "table", "key")
_NUMBERS: Final = ("sequence", "position", "nonce")
_WANTED: Final = pa.schema(
    [("index", pa.int64()), *((name, pa.int64() if name in _NUMBERS else pa.string()) for name in _NAMES)]
)


def with_trails(first: Sequence[Mapping[str, Any]], rows: DataFrame) -> list[dict[str, Any]]:
    """The same anomalies; the first ``WITH_TRAIL`` of each kind have ``trail``: records by column names."""
    chosen, seen = [], Counter[tuple[str, str]]()
    for index, each in enumerate(first):
        seen[each["of"], each["verdict"]] += 1
        if seen[each["of"], each["verdict"]] <= WITH_TRAIL:
            chosen.append((index, each))
    trails = _trails(chosen, rows) if chosen else {}
    return [{**each, "trail": trails[index]} if index in trails else dict(each) for index, each in enumerate(first)]


def _trails(chosen: Sequence[tuple[int, Mapping[str, Any]]], rows: DataFrame) -> dict[int, list[dict[str, Any]]]:
    wanted: dict[str, list[dict[str, Any]]] = {"point": [], "id": [], "object": []}
    for index, each in chosen:
        by = "object" if each.get("key") is not None else "point" if each.get("position") else "id"
        wanted[by].append({"index": index, **{name: each.get(name) for name in _NAMES}})
    matching = {"point": _by_point, "id": _by_id, "object": _by_object}
    found = [
        matching[by](rows, F.broadcast(small(rows.sparkSession, some, _WANTED))) for by, some in wanted.items() if some
    ]
    whole = found[0]
    for other in found[1:]:
        whole = whole.unionByName(other)
    # Bounded here; a few more than are shown, so that the rest needs no further exchange.
    of_stage = Window.partitionBy("index", "side", "kind", "outcome").orderBy("wall", "number")
    kept = whole.withColumn("again", F.row_number().over(of_stage)).filter(F.col("again") <= RECORDS)
    records: dict[int, list[Row]] = {index: [] for index, _ in chosen}
    for row in kept.collect():
        records[row["index"]].append(row)
    return {index: _shown(some) for index, some in records.items()}


def _shown(records: Sequence[Row]) -> list[dict[str, Any]]:
    """The first of every stage, then the earliest others, in the order of the way: a replica's after all others."""

    def way(row: Row) -> tuple[bool, int, int, int]:
        late = row["side"] == "replica"
        return late, 0 if late else _stage(row), row["wall"], row["number"]

    some = sorted(records, key=lambda row: (row["again"] > 1, way(row)))[:RECORDS]
    return [{name: row[name] for name in _SHOWN if row[name] not in (None, "")} for row in sorted(some, key=way)]


def _stage(row: Row) -> int:
    if row["kind"] == "object":
        return len(_STAGES)
    return _STAGES.index(row["outcome"]) if row["outcome"] in _STAGES else 0


def _concerned(of: str) -> Column:
    """Records of replicas are of this one; an anomaly without a replica concerns all."""
    return (F.col("side") != "replica") | F.col(f"{of}.name").isNull() | (F.col("rows.name") == F.col(f"{of}.name"))


def _record(version: Column) -> list[Column]:
    """A commit's time is when it was written, not when the changelog was read."""
    read_late = (F.col("rows.outcome") == "committed") & (F.col("rows.written") > 0)
    special = {
        "wall": F.when(read_late, F.col("rows.written")).otherwise(F.col("rows.wall")),
        "version": version.cast("bigint"),
    }
    from_rows = [special.get(name, F.col(f"rows.{name}")).alias(name) for name in _SHOWN]
    return [F.col("wanted.index").alias("index"), *from_rows]


def _joined(rows: DataFrame, wanted: DataFrame, columns: Sequence[str], more: Column, version: Column) -> DataFrame:
    same = more & _concerned("wanted")
    for name in columns:
        same = same & (F.col(f"rows.{name}") == F.col(f"wanted.{name}"))
    return rows.alias("rows").join(wanted.alias("wanted"), same).select(*_record(version))


def _by_point(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    data = rows.filter(F.col("kind") == "data")
    return _joined(data, wanted, POINT, F.lit(True), F.lit(None))


def _by_id(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    data = rows.filter((F.col("kind") == "data") & (F.col("uuid") != ""))
    return _joined(data, wanted, ("domain", "uuid", "topic", "sequence"), F.lit(True), F.lit(None))


def _by_object(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """What changed the object, and what listings say of it."""
    flat = rows.filter(F.col("kind").isin("data", "object")).withColumn("change", F.explode("changes"))
    same = (F.col("rows.change.table") == F.col("wanted.table")) & (F.col("rows.change.key") == F.col("wanted.key"))
    return _joined(flat, wanted, ("domain", "topic"), same, F.col("rows.change.version"))
