"""The parts of renamed files, by their names and by the numbers of their records."""

from pathlib import Path

import pytest

from pubsub_lib.audit.stream.part_numbers import NumberedFile, SpooledParts, part_numbers
from pubsub_lib.audit.stream.spool import Spool, folder_of
from pubsub_lib.journal import Journal
from pubsub_lib.journal.reading import find
from tests.unit.journal.builders import settings


@pytest.mark.parametrize(
    ("files", "opened", "expected"),
    [
        ([("x", 0, 1, 5)], set(), {"x": 1}),
        ([("a", 1, 1, 5), ("x", 0, 6, 9), ("b", 3, 10, 20)], set(), {"a": 1, "x": 2, "b": 3}),
        ([("a", 1, 1, 5), ("x", 0, 7, 9), ("b", 3, 10, 20)], set(), {"a": 1, "x": 0, "b": 3}),
        ([("y", 0, 6, 9), ("x", 0, 1, 5), ("z", 0, 10, 11)], set(), {"x": 1, "y": 2, "z": 3}),
        ([("a", 1, 1, 5), ("x", 0, 1, 5)], set(), {"a": 1, "x": 0}),
        ([("a", 1, 1, 5), ("x", 0, 6, 9)], {2}, {"a": 1, "x": 0}),
        ([("x~3", 0, 1, 3), ("x~5", 0, 4, 5), ("y", 0, 6, 7)], set(), {"x": 1, "y": 2}),
        ([("a~3", 2, 11, 13), ("a", 2, 14, 20), ("x", 0, 1, 10), ("y", 0, 21, 22)], set(), {"x": 1, "a": 2, "y": 3}),
    ],
)
def test_records_that_go_on_show_the_part(
    files: list[tuple[str, int, int, int]], opened: set[int], expected: dict[str, int]
) -> None:
    assert part_numbers([NumberedFile(*each) for each in files], opened) == expected


def test_parts_of_files_in_the_spool(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    for name in ("r1", "r2"):
        Journal(settings(journals), "replica", name).close()
    first, second = find([journals]).append
    renamed = second.rename(journals / f"host-2 {second.name}")
    spool = Spool(tmp_path / "spool", ["d"])
    for path in (first, renamed):
        spool.put(path, "d", None)
    parts = SpooledParts(tmp_path / "spool" / folder_of("d"))
    stems = [first.stem, renamed.stem]
    expected = {(each.stem[:32], 1) for each in (first, second)}
    assert parts.parts(stems, {}) == expected
    assert parts.parts([first.stem], {}) == {(first.stem[:32], 1)}
    (path,) = (tmp_path / "spool").glob("*/host-2*")
    path.write_bytes(b"damaged since")
    assert SpooledParts(tmp_path / "spool" / folder_of("d")).parts(stems, {}) == {(first.stem[:32], 1)}
