"""The parts of all batches. Reading the batches themselves needs Spark: test_loop.py."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from pubsub_lib.audit.stream.intake import folder_of
from pubsub_lib.audit.stream.runs import JournalPart
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.journal.compaction import write_parquet
from pubsub_lib.journal.entries import Entry, beginning, frame
from tests.unit.journal.builders import HEADER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def part(run: str, number: int, last: int, torn: str = "") -> JournalPart:
    return JournalPart(
        stem=f"{run}-{number:06d}", run=run, number=number, side="replica", name="r", host="h", whole=True, first=1,
        first_wall=1, last_wall=2, last_mark=None, closed=False, last=last, torn=torn,
    )  # fmt: skip


def stream_with(tmp_path: Path, parts: list[JournalPart], empty: list[str]) -> Stream:
    """A stream whose only batch read these parts, and in whose spool other files have no whole record."""
    stream = Stream(cast("SparkSession", None), tmp_path)
    spool = stream.spool / folder_of("d")
    spool.mkdir()
    for stem in [each.stem for each in parts] + empty:
        source = tmp_path / "source"
        source.write_bytes(beginning(HEADER) + frame(Entry(1, 2, 3, "mark"))[:9])
        write_parquet(source, spool / f"{stem}.parquet")
    (tmp_path / "batches" / "000000000.json").write_bytes(msgspec.json.encode({"d": parts}))
    return stream


def test_end_before_a_part_without_a_record_is_unknown(tmp_path: Path) -> None:
    stream = stream_with(
        tmp_path, [part("a", 1, 7), part("b", 1, 4), part("b", 3, 9)], ["a-000002", "b-000002", "c-000001"]
    )
    found = stream.parts({})
    assert found.unusable["d"] == {("a", 2), ("b", 2), ("c", 1)}
    assert [each for each in found.problems if "0 whole records were read" in each] == found.problems
    assert len(found.problems) == 3
    assert stream.torn == {"d": [("a", 7), ("b", 4)]}, "the run b has a later record, so 4 is not its last"


def test_end_before_a_part_that_is_lost_is_unknown(tmp_path: Path) -> None:
    stream = stream_with(tmp_path, [part("a", 1, 7), part("b", 1, 4, torn="b is cut")], [])
    assert stream.parts({"d": {("a", 2), ("b", 2)}, "other": {("a", 1)}}).problems == ["b is cut"]
    assert stream.torn == {"d": [("a", 7), ("b", 4)]}
    stream.parts({})
    assert stream.torn == {"d": [("b", 4)]}
