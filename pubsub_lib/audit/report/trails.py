"""Trails of anomalies: the journal records of one message or object, hop by hop (audit-verdicts.md, "Trails")."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.times import moment
from pubsub_lib.audit.rules.base_tables import POINT
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.spark.session import compiling
from pubsub_lib.audit.spark.settled import lookup

WITH_TRAIL: Final = 5
"""Maximum number of anomalies of each kind that get a trail."""
RECORDS: Final = 24
"""Maximum number of records of a trail: the first of every stage, then the earliest."""
OBJECTS: Final = 3
"""Maximum number of objects that a record of a trail names."""
_STAGES: Final = ("committed", "handed", "taken", "sent", "applied")
_SHOWN: Final = (
    "side", "name", "host", "run", "number", "kind", "outcome", "cause", "wall", "uuid", "sequence", "position",
)  # fmt: skip
_OF_CHANGE: Final = ("table", "key", "action", "version", "before")
_NAMES: Final = ("domain", "name", "uuid", "topic", "sequence", "position", "nonce", "table", "key")
_NUMBERS: Final = ("sequence", "position", "nonce")
_WANTED: Final = pa.schema(
    [("index", pa.int64()), *((name, pa.int64() if name in _NUMBERS else pa.string()) for name in _NAMES)]
)


def with_trails(
    first: Sequence[Mapping[str, Any]], rows: DataFrame, without_objects: DataFrame
) -> list[dict[str, Any]]:
    """The same anomalies; the first ``WITH_TRAIL`` of each kind also have ``trail``: records as dictionaries. Each has
    its ``time`` as text, the ``objects`` that it changes or holds, with their versions, and the number of ``more``.
    ``without_objects``: those of ``rows`` that are not objects.
    """
    chosen, seen = [], Counter[tuple[str, str]]()
    for index, each in enumerate(first):
        seen[each["of"], each["verdict"]] += 1
        if seen[each["of"], each["verdict"]] <= WITH_TRAIL:
            chosen.append((index, each))
    trails = _trails(chosen, rows, without_objects) if chosen else {}
    return [{**each, "trail": trails[index]} if index in trails else dict(each) for index, each in enumerate(first)]


def _trails(
    chosen: Sequence[tuple[int, Mapping[str, Any]]], rows: DataFrame, without_objects: DataFrame
) -> dict[int, list[dict[str, Any]]]:
    wanted: dict[str, list[dict[str, Any]]] = {"point": [], "id": [], "object": []}
    for index, each in chosen:
        by = "object" if each.get("key") is not None else "point" if each.get("position") else "id"
        wanted[by].append({"index": index, **{name: each.get(name) for name in _NAMES}})
    matching = {
        "point": partial(_by_point, without_objects),
        "id": partial(_by_id, without_objects),
        "object": partial(_by_object, rows),
    }
    found = [
        matching[by](lookup(small(rows.sparkSession, some, _WANTED)))
        for by, some in wanted.items()
        if some
    ]
    whole = found[0]
    for other in found[1:]:
        whole = whole.unionByName(other)
    # Limited here; a few more rows than are shown, because the exact choice in Spark would need another exchange.
    of_stage = Window.partitionBy("index", "side", "kind", "outcome").orderBy("wall", "number", "run")
    kept = whole.withColumn("again", F.dense_rank().over(of_stage)).filter(F.col("again") <= RECORDS)
    records: dict[int, list[Row]] = {index: [] for index, _ in chosen}
    with compiling(rows.sparkSession):
        for row in kept.collect():
            records[row["index"]].append(row)
    return {index: _shown(some) for index, some in records.items()}


def _shown(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The first record of every stage and the earliest others, in the order of the hops, the replica's records last.
    A record that has an object several times has several rows.
    """

    def way(row: Row) -> tuple[bool, int, int, int, str]:
        late = row["side"] == "replica"
        return late, 0 if late else _stage(row), row["wall"], row["number"], row["run"]

    records: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["place"]):
        records[row["run"], row["number"]].append(row)
    some = sorted(records.values(), key=lambda of: (of[0]["again"] > 1, way(of[0])))[:RECORDS]
    return [_record_of(of) for of in sorted(some, key=lambda of: way(of[0]))]


def _record_of(rows: Sequence[Row]) -> dict[str, Any]:
    row, changed = rows[0], sum(each["changed"] for each in rows)
    objects = [each for one in rows for each in one["objects"]][:OBJECTS]
    shown = {name: row[name] for name in _SHOWN if row[name] not in (None, "")}
    found: dict[str, Any] = {"time": moment(row["wall"]), **shown}
    if objects:
        found["objects"] = [{name: each[name] for name in _OF_CHANGE if each[name] is not None} for each in objects]
    if changed > len(objects):
        found["more"] = changed - len(objects)
    return found


def _stage(row: Row) -> int:
    if row["kind"] == "object":
        return len(_STAGES)
    return _STAGES.index(row["outcome"]) if row["outcome"] in _STAGES else 0


def _concerned(of: str) -> Column:
    """Selects a replica's record only for anomalies of that replica, or for anomalies without a replica."""
    return (F.col("side") != "replica") | F.col(f"{of}.name").isNull() | (F.col("rows.name") == F.col(f"{of}.name"))


def _record(changes: Column, place: Column) -> list[Column]:
    """The columns of a record, or of one of its changes at ``place``. The time of a commit is that of its writing, not
    that of reading the changelog.
    """
    read_late = (F.col("rows.outcome") == "committed") & (F.col("rows.written") > 0)
    wall = F.when(read_late, F.col("rows.written")).otherwise(F.col("rows.wall"))
    from_rows = [(wall if name == "wall" else F.col(f"rows.{name}")).alias(name) for name in _SHOWN]
    objects = [F.slice(changes, 1, OBJECTS).alias("objects"), F.size(changes).alias("changed")]
    return [F.col("wanted.index").alias("index"), *from_rows, *objects, place.alias("place")]


def _joined(rows: DataFrame, wanted: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The records that have these columns in common with the anomalies."""
    return _selected(rows, wanted, columns, F.lit(True), _record(F.col("rows.changes"), F.lit(0)))


def _selected(
    rows: DataFrame, wanted: DataFrame, columns: Sequence[str], more: Column, record: Sequence[Column]
) -> DataFrame:
    same = more & _concerned("wanted")
    for name in columns:
        same = same & (F.col(f"rows.{name}") == F.col(f"wanted.{name}"))
    return rows.alias("rows").join(wanted.alias("wanted"), same).select(*record)


def _by_point(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    data = rows.filter(F.col("kind") == "data")
    return _joined(data, wanted, POINT)


def _by_id(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    data = rows.filter((F.col("kind") == "data") & (F.col("uuid") != ""))
    return _joined(data, wanted, ("domain", "uuid", "topic", "sequence"))


def _by_object(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """The records that changed the object, and its records in listings."""
    with_objects = rows.filter(F.col("kind").isin("data", "object"))
    flat = with_objects.select("*", F.posexplode("changes").alias("place", "change"))
    same = (F.col("rows.change.table") == F.col("wanted.table")) & (F.col("rows.change.key") == F.col("wanted.key"))
    record = _record(F.array("rows.change"), F.col("rows.place"))
    return _selected(flat, wanted, ("domain", "topic"), same, record)
