"""The parts of all batches. Most tests here do without Spark; test_loop.py reads many batches."""

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.stream.runs import JournalPart
from pubsub_lib.audit.stream.spool import folder_of, taken_of
from pubsub_lib.audit.stream.tables import Stream
from pubsub_lib.journal.compaction import write_parquet
from pubsub_lib.journal.entries import Entry, beginning, frame
from tests.unit.journal.builders import HEADER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def part(run: str, number: int, last: int, torn: str = "") -> JournalPart:
    return JournalPart(
        stem=f"{run}-{number:06d}", run=run, number=number, side="replica", name="r", host="h", whole=True, first=last,
        first_wall=1, last_wall=2, last_mark=None, closed=False, last=last, torn=torn,
    )  # fmt: skip


def write_file(path: Path, entries: bytes) -> None:
    """A file of the run in its name."""
    run, number = run_and_part(taken_of(path.stem)[0])
    source = path.with_name(".source")
    source.write_bytes(beginning(msgspec.structs.replace(HEADER, run=run, part=number)) + entries)
    write_parquet(source, path)
    source.unlink()


def stream_with(tmp_path: Path, parts: list[JournalPart], empty: list[str]) -> Stream:
    """A stream whose only batch read these parts, and in whose spool other files have no whole record."""
    stream = Stream(cast("SparkSession", None), tmp_path)
    spool = stream.spool / folder_of("d")
    spool.mkdir()
    whole = frame(Entry(1, 2, 3, "mark"))
    for stem, content in [*((each.stem, whole) for each in parts), *((stem, whole[:9]) for stem in empty)]:
        write_file(spool / f"{stem}.parquet", content)
    (tmp_path / "batches" / "000000000.json").write_bytes(msgspec.json.encode({"d": parts}))
    return stream


def test_end_before_a_part_without_a_record_is_unknown(tmp_path: Path) -> None:
    stream = stream_with(
        tmp_path, [part("a", 1, 7), part("b", 1, 4), part("b", 3, 9)], ["a-000002", "b-000002", "c-000001"]
    )
    found = stream.parts({})
    assert found.unusable["d"] == {("a", 2), ("b", 2), ("c", 1)}
    assert all(each.clocks is not None for each in found.good["d"]), "read again, as from an earlier version"
    assert [each for each in found.problems if "0 whole records were read" in each] == found.problems
    assert len(found.problems) == 3
    assert stream.torn == {"d": [("a", 7), ("b", 4)]}, "the run b has a later record, so 4 is not its last"


def test_end_before_a_part_that_is_lost_is_unknown(tmp_path: Path) -> None:
    stream = stream_with(tmp_path, [part("a", 1, 7), part("b", 1, 4, torn="b is cut")], [])
    assert stream.parts({"d": {("a", 2), ("b", 2)}, "other": {("a", 1)}}).problems == ["b is cut"]
    assert stream.torn == {"d": [("a", 7), ("b", 4)]}
    stream.parts({})
    assert stream.torn == {"d": [("b", 4)]}


def test_copy_under_another_name_is_ignored(tmp_path: Path) -> None:
    copy = msgspec.structs.replace(part("a", 1, 7, torn="x is cut"), stem="x", number=0)
    stream = stream_with(tmp_path, [part("a", 1, 7), copy, part("a", 2, 9)], [])
    found = stream.parts({})
    assert [each.stem for each in found.good["d"]] == ["a-000001", "a-000002"]
    assert found.problems == ["x is a copy of a-000001 under another name and ignored; remove one of them"]
    assert stream.torn == {}


def test_file_that_grew_after_it_was_cut_is_not_torn(tmp_path: Path) -> None:
    """Also when no record had been read of it, or when it was given up before it grew."""
    first, rest = part("a", 1, 7, torn="a is cut"), part("a", 1, 9)
    parts = [msgspec.structs.replace(first, stem="a-000001~7"), msgspec.structs.replace(rest, stem="a-000001~9")]
    third = msgspec.structs.replace(part("a", 2, 12), stem="a-000002~12")
    stream = stream_with(tmp_path, [*parts, third], ["a-000002~0", "b-000001~0"])
    found = stream.parts({"d": {("a", 2)}})
    (problem,) = found.problems
    assert problem.startswith("b-000001 ends in the middle of a record: 0 whole records were read")
    assert stream.torn == {}
    assert found.unusable["d"] == {("b", 1)}


def test_each_batch_keeps_its_parts_whatever_their_numbers(spark: "SparkSession", tmp_path: Path) -> None:
    """Batches are named by Spark's number, not by that of a part: many runs have a first part."""
    stream = Stream(spark, tmp_path / "checkpoint")
    spool = stream.spool / folder_of("d")
    spool.mkdir()
    expected: list[tuple[str, int]] = []
    for stem in ("a-000001", "b-000001", "a-000002"):
        write_file(spool / f"{stem}.parquet", frame(Entry(int(stem[-6:]), 2, 3, "mark")))
        stream.advance()
        expected = sorted([*expected, (stem, int(stem[-6:]))])
        again = Stream(spark, tmp_path / "checkpoint")  # also after a restart
        for found in (stream.parts({}), again.parts({})):
            assert [(each.stem, each.number) for each in found.good["d"]] == expected
            assert not found.problems
            assert not found.unusable["d"]


THREE = ["a-000001", "b-000001", "c-000001"]
NOT_WHOLE = [
    ("stream/offsets/1", b""), ("stream/commits/1", b"v1\n{"), ("stream/sources/0/1", bytes(64)),
    ("stream/metadata", b""), ("batches/000000000.json", b""), ("batches/000000001.json", b'{"d":['),
    ("batches/000000000.json", None),
]  # fmt: skip
"""A file of a stream with two batches, and its content; None: it is missing."""


def stems(stream: Stream) -> list[str]:
    found = stream.parts({})
    assert found.problems == []
    return [each.stem for each in found.good["d"]]


@pytest.mark.long
def test_spool_is_read_again_when_a_file_of_the_stream_is_not_whole(spark: "SparkSession", tmp_path: Path) -> None:
    """A power loss may leave that. No result depends on these files, so no journal counts as damaged."""
    checkpoint, kept = tmp_path / "checkpoint", tmp_path / "kept"
    stream = Stream(spark, checkpoint)
    spool = stream.spool / folder_of("d")
    spool.mkdir()
    for stem in THREE[:2]:
        write_file(spool / f"{stem}.parquet", frame(Entry(1, 2, 3, "mark")))
        stream.advance()
    shutil.copytree(checkpoint, kept)
    for name, content in NOT_WHOLE:
        shutil.rmtree(checkpoint)
        shutil.copytree(kept, checkpoint)
        if content is None:
            (checkpoint / name).unlink()
        else:
            (checkpoint / name).write_bytes(content)
        write_file(spool / f"{THREE[2]}.parquet", frame(Entry(1, 2, 3, "mark")))
        again = Stream(spark, checkpoint)
        again.advance()
        again.parts({})
        (note,) = again.noted()
        assert again.noted() == []
        assert (stems(again), stems(Stream(spark, checkpoint))) == (THREE, THREE), (name, content)
        assert note.startswith(f"{checkpoint / name} is not whole")


def test_reading_again_that_was_interrupted_is_repeated(spark: "SparkSession", tmp_path: Path) -> None:
    """Also by an earlier version, which renamed the folder of Spark first, and removed the batches then."""
    stream = Stream(spark, tmp_path)
    spool = stream.spool / folder_of("d")
    spool.mkdir()
    write_file(spool / f"{THREE[0]}.parquet", frame(Entry(1, 2, 3, "mark")))
    stream.advance()
    (tmp_path / "stream").rename(tmp_path / ".stream.old")
    (tmp_path / "batches" / "000000003.json").write_bytes(b"")
    again = Stream(spark, tmp_path)
    again.advance()
    assert stems(again) == THREE[:1]
    assert not (tmp_path / ".stream.old").exists()


def test_file_that_spark_did_not_read_is_read_again(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark skips a file whose reading fails, also when only the system was short of something."""
    stream = Stream(spark, tmp_path / "checkpoint")
    spool = stream.spool / folder_of("d")
    spool.mkdir()
    for stem in THREE:
        write_file(spool / f"{stem}.parquet", frame(Entry(1, 2, 3, "mark")))
    skipped = spool / f"{THREE[1]}.parquet"
    content = skipped.read_bytes()
    skipped.write_bytes(content[:50])
    stream.advance()
    skipped.write_bytes(content)
    assert stems(stream) == THREE
    skipped.write_bytes(content[:-50])
    again = Stream(spark, tmp_path / "checkpoint")
    assert stems(again) == THREE, "what was read once counts"


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense"])
def test_file_in_the_spool_that_is_no_parquet_file_is_damaged(content: bytes, tmp_path: Path) -> None:
    stream = stream_with(tmp_path, [part("a", 1, 7)], [])
    (stream.spool / folder_of("d") / "b-000001.parquet").write_bytes(content)
    for _ in range(2):
        assert stream.parts({}).problems == ["b-000001 is damaged; its records count as lost"]


def test_file_in_the_spool_with_a_damaged_footer_is_damaged(tmp_path: Path) -> None:
    """Arrow raises its own OSError for it, or a ValueError."""
    stream = stream_with(tmp_path, [part("a", 1, 7)], [])
    path = stream.spool / folder_of("d") / "b-000001.parquet"
    write_file(path, frame(Entry(1, 2, 3, "mark")))
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[: -8 - footer] + bytes(footer) + content[-8:])
    for _ in range(2):
        assert stream.parts({}).problems == ["b-000001 is damaged; its records count as lost"]


def test_file_in_the_spool_that_the_system_cannot_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_with(tmp_path, [part("a", 1, 7)], ["b-000001"])

    def fails(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(pq, "read_metadata", fails)
    with pytest.raises(OSError, match="Input/output error"):
        stream.parts({})


class Flaky(Stream):
    """Stands for one with Spark that reads no file of the spool; ``fails``: how many of its next readings fail."""

    fails = 0
    times = 0

    def _read_new(self) -> None:
        self.times += 1
        if self.fails:
            self.fails -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_file_is_checked_again_when_the_reading_after_it_failed(tmp_path: Path) -> None:
    """Else a whole file would count as lost without having been read again."""
    stream = Flaky(cast("SparkSession", None), tmp_path)
    folder = stream.spool / folder_of("d")
    folder.mkdir()
    write_file(folder / "a-000001.parquet", frame(Entry(1, 2, 3, "mark")))
    stream.fails = 1
    with pytest.raises(OSError, match="No space left"):
        stream.parts({})
    for _ in range(2):
        assert stream.parts({}).problems == ["a-000001 is damaged; its records count as lost"]
    assert stream.times == 2, "a file that was read again without success is not read at each round"


@pytest.mark.parametrize("step", ["unlink", "rename"])
def test_beginning_again_that_fails_is_repeated_by_the_next_reading(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Flaky(cast("SparkSession", None), tmp_path)
    folder = stream.spool / folder_of("d")
    folder.mkdir()
    write_file(folder / "a-000001.parquet", frame(Entry(1, 2, 3, "mark")))
    for number in range(2):
        (tmp_path / "batches" / f"00000000{number}.json").write_bytes(b"{}")
        (tmp_path / "stream" / "commits").mkdir(exist_ok=True)
        (tmp_path / "stream" / "commits" / str(number)).write_bytes(b"v1\n{}")
    stream.advance()
    real, calls = getattr(Path, step), []

    def fails(path: Path, *args: object, **how: object) -> object:
        calls.append(path)
        if len(calls) == (2 if step == "unlink" else 1):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *args, **how)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Input/output error"):
        patched.setattr(Path, step, fails)
        stream.parts({})
    stream.advance()
    assert not [*(tmp_path / "batches").iterdir(), *(tmp_path / "stream").iterdir()]
