"""An append file read frame by frame: as ``parse`` reads it whole, and while its writer goes on."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub_lib.errors import JournalError
from pubsub_lib.journal import streaming
from pubsub_lib.journal.appending import AppendFile
from pubsub_lib.journal.entries import MAGIC, MAX_FRAME, PREFIX, Entry, beginning, frame, parse
from pubsub_lib.journal.streaming import LOOKS, AppendReader
from tests.unit.journal.builders import HEADER

BEGIN = beginning(HEADER)
MARKS = [frame(Entry(number, 5, 6, "mark")) for number in (1, 2, 3)]
BODIES = [each[PREFIX.size :] for each in MARKS]


def read(path: Path) -> tuple[list[bytes], int, bool]:
    with AppendReader(path) as reader:
        assert reader.header == HEADER
        return list(reader.frames()), reader.torn, reader.damaged


@pytest.mark.parametrize("end", range(len(BEGIN), len(BEGIN) + len(MARKS[0]) + len(MARKS[1]) + 1))
def test_cut_file_is_read_up_to_its_last_whole_frame(end: int, tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    data = (BEGIN + b"".join(MARKS))[:end]
    path.write_bytes(data)
    bodies, torn, damaged = read(path)
    contents = parse(data, "a")
    assert bodies == BODIES[: len(contents.entries)]
    assert (torn, damaged) == (contents.torn, contents.damaged)


@pytest.mark.parametrize("at", range(len(BEGIN) + len(MARKS[0]), len(BEGIN) + len(MARKS[0]) + len(MARKS[1])))
def test_changed_bit_ends_the_reading_as_for_other_readers(at: int, tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    data = bytearray(BEGIN + b"".join(MARKS))
    data[at] ^= 0x80
    path.write_bytes(data)
    contents = parse(bytes(data), "a")
    assert len(contents.entries) == 1
    assert read(path) == (BODIES[:1], contents.torn, contents.damaged)


def test_length_beyond_the_maximum_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(BEGIN + PREFIX.pack(MAX_FRAME + 1, 0) + bytes(9))
    assert read(path) == ([], PREFIX.size + 9, True)


@pytest.mark.parametrize("content", [b"", b"nonsense", MAGIC[:-1]])
def test_other_file_is_rejected(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"a.journal is not a journal; remove it"):
        AppendReader(path)


def test_file_without_a_whole_header_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(BEGIN[:-1])
    with pytest.raises(JournalError, match=r"a.journal has no readable header"):
        AppendReader(path)


class Growing:
    """A locked file. ``pauses``: what happens in each pause between two looks."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.file = AppendFile(path, BEGIN)
        self.file.append(MARKS[0])
        self.pauses: list[Callable[[], object]] = []
        self.waited = 0
        monkeypatch.setattr(streaming, "sleep", self._pause)

    def _pause(self, _: float) -> None:
        self.waited += 1
        if self.pauses:
            self.pauses.pop(0)()


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    return Growing(tmp_path / "a.journal", monkeypatch)


def test_frame_that_is_being_written_is_waited_for(growing: Growing) -> None:
    growing.file.append(MARKS[1][:5])
    growing.pauses = [lambda: growing.file.append(MARKS[1][5:9]), lambda: growing.file.append(MARKS[1][9:])]
    assert read(growing.path) == (BODIES[:2], 0, False)
    assert growing.waited == 2


def test_half_a_frame_that_stays_is_torn(growing: Growing) -> None:
    growing.file.append(MARKS[1][:11])
    assert read(growing.path) == (BODIES[:1], 11, False)
    assert growing.waited == 1


def test_frame_completed_by_a_writer_that_then_ended_is_read(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer ends between the reading of half a frame and the look at its lock."""
    growing.file.append(MARKS[1][:11])

    def ended(_: Path) -> bool:
        growing.file.append(MARKS[1][11:])
        growing.file.close()
        return False

    monkeypatch.setattr(streaming, "being_written", ended)
    assert read(growing.path) == (BODIES[:2], 0, False)


def test_half_a_frame_in_a_file_that_was_converted_meanwhile_is_torn(growing: Growing) -> None:
    growing.file.append(MARKS[1][:11])
    with AppendReader(growing.path) as reader:
        growing.path.unlink()
        assert list(reader.frames()) == BODIES[:1]
        assert (reader.torn, reader.damaged) == (11, False)


def test_damaged_length_is_found_although_the_writer_goes_on(growing: Growing) -> None:
    growing.file.append(PREFIX.pack(1 << 20, 0))
    growing.pauses = [lambda: growing.file.append(MARKS[1])] * 20
    bodies, torn, damaged = read(growing.path)
    assert (bodies, damaged) == (BODIES[:1], True)
    assert torn == PREFIX.size + (LOOKS - 1) * len(MARKS[1])


def test_reading_ends_although_the_writer_is_faster(growing: Growing) -> None:
    growing.file.append(MARKS[1])
    with AppendReader(growing.path) as reader:
        growing.file.append(MARKS[2])
        assert list(reader.frames()) == BODIES[:2]
        assert (reader.torn, reader.damaged) == (0, False)
    assert growing.waited == 0


def test_memory_does_not_depend_on_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(BEGIN + MARKS[0] * 100_000)
    with AppendReader(path) as reader:
        tracemalloc.start()
        try:
            assert sum(1 for _ in reader.frames()) == 100_000
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert path.stat().st_size > 2_000_000
    assert peak < 100_000
