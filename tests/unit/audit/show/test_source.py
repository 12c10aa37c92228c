"""One file of a journal: all its records, and one sentence for what cannot be read."""

import fcntl
import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.show import source as show
from pubsub_lib.audit.show.files import journal_files
from pubsub_lib.audit.show.source import Source
from pubsub_lib.core.envelope import Message
from pubsub_lib.core.model import Change
from pubsub_lib.journal import streaming
from pubsub_lib.journal.appending import AppendFile
from pubsub_lib.journal.compaction import write_parquet
from pubsub_lib.journal.entries import PREFIX, Entry, beginning, checksum_of, frame
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import Row, arrow_schema, as_dict
from tests.unit.audit.ingest.test_input import damage
from tests.unit.journal.builders import HEADER, envelope

BEGIN = beginning(HEADER)
NAME = f"{HEADER.run}-000001"


def raw(*fields: object) -> bytes:
    body = msgspec.msgpack.encode(fields)
    return PREFIX.pack(len(body), checksum_of(body)) + body


def applied(number: int, *positions: int) -> bytes:
    messages = envelope(*positions).messages
    return frame(Entry(number, 1_000 + number, 2_000, "data", ("applied",), "s1", "cd" * 16, "t1", 11, messages))


OPEN = frame(Entry(1, 1_000, 2_000, "open"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{NAME}.journal"


def shown(path: Path) -> tuple[list[Row], list[str], Source]:
    ((file,), _) = journal_files([path])
    source = Source(file)
    rows = list(source.records())
    assert source.count == len(rows)
    return rows, source.problems, source


def test_append_file_has_the_records_that_all_readers_see(path: Path) -> None:
    path.write_bytes(BEGIN + OPEN + applied(2, 7, 8) + applied(4, 9))
    rows, problems, source = shown(path)
    assert rows == list(read(path))
    assert [each.number for each in rows] == [1, 2, 3, 4]
    assert [each.changes[0].before for each in rows[1:]] == [None, 7, 8]
    assert problems == []
    assert source.first == rows[0]
    assert not source.growing


def test_parquet_file_has_the_same_records(path: Path) -> None:
    path.write_bytes(BEGIN + OPEN + applied(2, 7, 8) + applied(4, 9))
    before, _, _ = shown(path)
    made = path.with_suffix(".parquet")
    write_parquet(path, made)
    assert shown(made)[:2] == (before, [])


def test_file_that_was_converted_meanwhile_is_read_in_its_new_form(path: Path) -> None:
    path.write_bytes(BEGIN + OPEN)
    write_parquet(path, path.with_suffix(".parquet"))
    path.unlink()
    rows, problems, source = shown(path)
    assert ([each.kind for each in rows], problems) == (["open"], [])
    assert source.path == path.with_suffix(".parquet")


@pytest.mark.parametrize("parquet", [False, True])
def test_torn_tail_is_one_sentence(path: Path, parquet: bool) -> None:
    path.write_bytes(BEGIN + OPEN + applied(2, 7)[:-3])
    if parquet:
        write_parquet(path, path.with_suffix(".parquet"))
        path = path.with_suffix(".parquet")
    rows, problems, _ = shown(path)
    assert [each.kind for each in rows] == ["open"]
    size = len(applied(2, 7)) - 3
    (problem,) = problems
    assert problem == (
        f"{path} ends in the middle of a record: 1 whole record was read, and the last {size} bytes were not; its "
        "writer was killed or its disk was full, or the file is an incomplete copy: then copy it again"
    )


def test_failed_checksum_of_a_record_is_one_sentence(path: Path) -> None:
    data = bytearray(BEGIN + OPEN + applied(2, 7) + applied(3, 8))
    data[len(BEGIN + OPEN) + 20] ^= 1
    path.write_bytes(data)
    rows, (problem,), _ = shown(path)
    assert [each.kind for each in rows] == ["open"]
    assert problem.startswith(f"{path} was damaged after it was written: 1 whole record was read, and the last ")


def test_failed_checksum_of_a_parquet_file_is_one_sentence(path: Path) -> None:
    path.write_bytes(BEGIN + OPEN + applied(2, 7))
    made = path.with_suffix(".parquet")
    write_parquet(path, made)
    damage(made)
    assert shown(made)[:2] == (
        [], [f"{made} is damaged (its checksum does not match its content); remove it or copy it again"]
    )  # fmt: skip


def test_records_of_unknown_kinds_are_shown_with_one_sentence(path: Path) -> None:
    kinds = ["election", "vote", "election"]
    path.write_bytes(BEGIN + OPEN + b"".join(raw(2 + at, 5, 6, kind) for at, kind in enumerate(kinds)) + applied(5, 7))
    rows, (problem,), _ = shown(path)
    assert [each.kind for each in rows] == ["open", *kinds, "data"]
    assert problem == (
        f"{path} has 3 records of unknown kinds (election, vote), shown as far as possible; a newer version of this "
        "library may have written them"
    )


def test_a_sentence_names_some_unknown_kinds_only(path: Path) -> None:
    path.write_bytes(BEGIN + b"".join(raw(1 + at, 5, 6, f"k{at}") for at in range(20)))
    rows, (problem,), _ = shown(path)
    assert len(rows) == 20
    assert "has 20 records of unknown kinds (k0, k1, k2, k3, k4, …), shown" in problem


def test_entries_that_cannot_be_decoded_are_left_out_with_one_sentence(path: Path) -> None:
    link = msgspec.structs.replace(envelope(7).messages[0].link, written_at=float("inf"))
    endless = frame(Entry(3, 5, 6, "data", ("applied",), messages=[Message(link)]))
    path.write_bytes(BEGIN + OPEN + raw("two", 5, 6, "mark") + endless + applied(4, 7))
    rows, (problem,), _ = shown(path)
    assert [each.number for each in rows] == [1, 4]
    assert problem.startswith(
        f"{path} has 2 records that cannot be decoded (ValidationError: Expected `int`, got `str`"
    )
    assert problem.endswith("another program may have written them; all others are shown")


def test_parquet_file_with_empty_columns_shows_its_other_records(path: Path) -> None:
    path.write_bytes(BEGIN + OPEN + applied(2, 7))
    found = [as_dict(each) for each in read(path)]
    without: list[dict[str, Any]] = [{**found[0], "wall": None}, {**found[1], "changes": [{"table": "lport"}]}]
    made = path.with_suffix(".parquet")
    schema = arrow_schema().with_metadata({SCHEMA_KEY: b"1"})
    pq.write_table(pa.Table.from_pylist([*found, *without], schema), made)
    rows, (problem,), _ = shown(made)
    assert [each.number for each in rows] == [1, 2]
    assert problem == (
        f"{made} has 2 records that cannot be decoded (a column has no value); another program may have written them; "
        "all others are shown"
    )


def test_growing_file_is_read_up_to_its_last_whole_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendFile(path, BEGIN + OPEN)
    whole = applied(2, 7)
    file.append(whole[:9])
    monkeypatch.setattr(streaming, "sleep", lambda _: file.append(whole[9:]))
    rows, problems, source = shown(path)
    assert ([each.kind for each in rows], problems, source.growing) == (["open", "data"], [], True)
    file.close()


def test_file_that_grows_while_it_is_read_has_an_end(path: Path) -> None:
    file = AppendFile(path, BEGIN + OPEN)
    file.append(applied(2, 7))
    ((named,), _) = journal_files([path])
    source = Source(named)
    for each in source.records():
        file.append(applied(each.number + 2, 7))
    assert (source.count, source.problems) == (2, [])
    file.close()


@pytest.mark.parametrize("name", ["gone.journal", "gone.parquet"])
def test_missing_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert shown(path)[:2] == ([], [f"{path} does not exist; name a file or a folder of journals"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty; its writer has just begun it, or was killed then"),
        (b"nonsense", "is not a journal; remove it from the journals' folder"),
        (BEGIN[:-2], "has no readable header (Input data was truncated); remove it, nothing else is readable"),
        (
            beginning(msgspec.structs.replace(HEADER, schema=9)),
            "has the schema version 9, this program reads up to 2; read it with a newer version of this library",
        ),
    ],
)
def test_file_without_a_readable_record_is_one_sentence(content: bytes, problem: str, path: Path) -> None:
    path.write_bytes(content)
    assert shown(path)[:2] == ([], [f"{path} {problem}"])


def test_pipe_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert shown(path)[:2] == ([], [f"{path} is not a file; name a file or a folder of journals"])


def test_file_without_rights_is_one_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(BEGIN + OPEN)

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")  # the user of the tests may have all rights

    monkeypatch.setattr(show, "AppendReader", refuse)
    assert shown(path)[:2] == ([], [f"{path} cannot be read (Permission denied); correct its rights or its disk"])


def test_parquet_file_without_pyarrow_is_one_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = path.with_suffix(".parquet")
    made.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    rows, (problem,), _ = shown(made)
    assert rows == []
    assert problem == f"{made} cannot be read (pyarrow.parquet is not installed); run: pip install pubsub-lib[journal]"


def test_lock_is_not_kept(path: Path) -> None:
    """A reader must not look like a writer."""
    path.write_bytes(BEGIN + OPEN)
    ((named,), _) = journal_files([path])
    for _ in Source(named).records():
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_memory_does_not_depend_on_the_number_of_objects(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced versions are looked for among a limited number of records."""
    monkeypatch.setattr(show, "TOGETHER", 100)

    def peak(entries: int) -> int:
        with path.open("wb") as file:
            file.write(BEGIN)
            for number in range(1, entries + 1):
                link = msgspec.structs.replace(
                    envelope(7).messages[0].link, changes=[Change("lport", f"port-{number}", "set", number, b"1")]
                )
                file.write(frame(Entry(number, 5, 6, "data", ("applied",), messages=[Message(link)])))
        ((named,), _) = journal_files([path])
        tracemalloc.start()
        try:
            source = Source(named)
            assert sum(1 for _ in source.records()) == entries, source.problems
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(8_000) < path.stat().st_size / 2
