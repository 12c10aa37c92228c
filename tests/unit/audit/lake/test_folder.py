"""The files of a lake: replaced together or not at all, with checksums and a schema version."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib import failpoints
from pubsub_lib.audit.lake import folder
from pubsub_lib.audit.lake.folder import VERSION_KEY, About, Damaged, Lake, is_lake, prepare
from pubsub_lib.audit.lake.tables import SCHEMAS, Tables
from pubsub_lib.audit.settings import SECOND
from pubsub_lib.errors import ConfigError
from pubsub_lib.failpoints import Armed, FailpointReached
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, seal
from tests.unit.audit.lake.additions import FIRST, LOST, SECOND_DAY, WINDOW, addition, audited

ABOUT = About(1, WINDOW, {"": str(FIRST)})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    prepare(tmp_path / "lake", WINDOW)
    return Lake(tmp_path / "lake")


def days(number: int) -> dict[Any, Tables]:
    """Two days with this number of lost deliveries on each."""
    one = addition([audited("01 10:00", "02 10:00")], {"01 10:00": {LOST: number}, "02 09:00": {LOST: number}})
    return dict(one.by_day()[0])


def lost(lake: Lake) -> list[int]:
    with lake.locked(write=False):
        return [sum(lake.read("balance", day)["lost"].to_pylist()) for day in lake.days()]


def replace(lake: Lake, number: int) -> None:
    with lake.locked(write=True):
        lake.replace(ABOUT, days(number))


def test_days_are_read_as_they_were_written(lake: Lake) -> None:
    replace(lake, 3)
    with lake.locked(write=False):
        assert lake.days() == [FIRST, SECOND_DAY]
        assert lake.about() == ABOUT
        for name, schema in SCHEMAS.items():
            assert lake.read(name, FIRST) == days(3)[FIRST][name]
            assert lake.read(name, FIRST).schema == schema
    assert sorted(each.name for each in lake.folder.iterdir()) == sorted([".lock", "lake.json", *SCHEMAS])
    metadata = pq.read_metadata(lake.folder / "balance" / "day=2026-11-01" / "part-0.parquet").metadata
    assert metadata[VERSION_KEY] == b"1"


@pytest.mark.parametrize(
    ("place", "turn", "after"),
    [("lake.before_ready", 1, 3), ("lake.before_move", 1, 8), ("lake.before_move", 5, 8), ("lake.before_move", 13, 8)],
)
def test_killed_append_leaves_all_or_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, place: str, turn: int, after: int
) -> None:
    replace(lake, 3)
    monkeypatch.setitem(failpoints.armed, place, Armed("raise", turn))
    # A killed process removes no files.
    monkeypatch.setattr("pubsub_lib.audit.lake.folder.shutil.rmtree", lambda *_, **__: None)
    with pytest.raises(FailpointReached):
        replace(lake, 8)
    monkeypatch.undo()
    assert lost(lake) == [after, after]
    with lake.locked(write=True):  # the next append removes or moves the files
        pass
    assert not {".new", ".ready"} & {each.name for each in lake.folder.iterdir()}
    assert lost(lake) == [after, after]
    replace(lake, 9)
    assert lost(lake) == [9, 9]


@pytest.mark.parametrize(("place", "after"), [("lake.before_ready=kill", 3), ("lake.before_move=kill@4", 8)])
def test_process_that_is_killed_in_an_append_holds_no_lock(lake: Lake, place: str, after: int) -> None:
    replace(lake, 3)
    code = (
        "import sys; from pathlib import Path; from tests.unit.audit.lake.test_folder import *; "
        "replace(Lake(Path(sys.argv[1])), 8)"
    )
    environment = {**os.environ, failpoints.VARIABLE: place}
    done = subprocess.run(
        [sys.executable, "-c", code, str(lake.folder)], env=environment, cwd=Path(__file__).parents[4], check=False
    )
    assert done.returncode == -9
    assert lost(lake) == [after, after]
    replace(lake, 9)
    assert lost(lake) == [9, 9]


def test_failed_append_leaves_the_lake_as_it_was(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(lake, 3)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        replace(lake, 8)
    monkeypatch.undo()
    assert lost(lake) == [3, 3]
    assert not (lake.folder / ".new").exists()


def path_of(lake: Lake, table: str = "verdict") -> Path:
    return lake.folder / table / "day=2026-11-01" / "part-0.parquet"


def test_each_damaged_byte_is_found(lake: Lake) -> None:
    replace(lake, 3)
    path = path_of(lake)
    whole = path.read_bytes()
    for place in range(0, len(whole), 41):
        broken = bytearray(whole)
        broken[place] ^= 4
        path.write_bytes(broken)
        with pytest.raises((Damaged, ConfigError)):
            lake.read("verdict", FIRST)
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(Damaged, match=r"day=2026-11-01/part-0\.parquet is damaged"):
            lake.read("verdict", FIRST)


def test_damaged_file_that_was_set_aside_is_named(lake: Lake) -> None:
    replace(lake, 3)
    with lake.locked(write=True):
        lake.set_aside("verdict", FIRST)
    assert lake.damaged(FIRST) == [f"{path_of(lake).with_name('_part-0.damaged')} was damaged and set aside"]
    assert lake.damaged(SECOND_DAY) == []
    assert lake.read("verdict", FIRST).num_rows == 0
    others = pq.read_table(lake.folder / "verdict")  # as any reader of Parquet folders does
    assert others["day"].unique().to_pylist() == [str(SECOND_DAY)]


def written(path: Path, table: pa.Table, version: bytes) -> None:
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: version, CHECKSUM_KEY: UNSEALED}), path)
    seal(path)


def test_file_of_a_newer_schema_is_refused(lake: Lake) -> None:
    replace(lake, 3)
    written(path_of(lake), pa.table({"new": [1]}), b"2")
    with pytest.raises(ConfigError, match="has the schema 2; this version knows 1: update pubsub_lib"):
        lake.read("verdict", FIRST)
    written(path_of(lake), pa.table({"new": [1]}), b"1")
    with pytest.raises(Damaged, match="it has other columns"):
        lake.read("verdict", FIRST)


def test_unreadable_file_is_not_damaged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(lake, 3)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder, "check_seal", refused)
    with pytest.raises(PermissionError):
        lake.read("verdict", FIRST)


def test_removed_day_has_no_files(lake: Lake) -> None:
    replace(lake, 3)
    with lake.locked(write=True):
        lake.remove(FIRST)
    assert lake.days() == [SECOND_DAY]


def test_folder_of_other_files_is_not_a_lake(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not empty and not a folder of --append; name a new folder"):
        prepare(tmp_path, WINDOW)
    with pytest.raises(ConfigError, match="is not empty and not a folder"):
        prepare(tmp_path / "summary.json", WINDOW)
    with pytest.raises(ConfigError, match=r"cannot be written \(Not a directory\)"):
        prepare(tmp_path / "summary.json" / "lake", WINDOW)
    assert not is_lake(tmp_path)
    with pytest.raises(ConfigError, match=r"is not a folder of --append \(lake.json cannot be read: No such file"):
        Lake(tmp_path).about()


def test_empty_folder_becomes_a_lake_once(tmp_path: Path) -> None:
    for _ in range(2):
        prepare(tmp_path, WINDOW)
    assert is_lake(tmp_path)
    with pytest.raises(ConfigError, match=r"has windows of 60 s, and this audit 0\.5 s; give --window 60, or name"):
        prepare(tmp_path, SECOND // 2)


def test_description_of_a_lake_is_checked(lake: Lake) -> None:
    path = lake.folder / "lake.json"
    path.write_text('{"schema": 2, "window": 1}')
    with pytest.raises(ConfigError, match="has the schema 2; this version knows 1"):
        lake.about()
    path.write_text("[]")
    with pytest.raises(ConfigError, match="is not the description of a folder of --append"):
        lake.about()


def test_copy_without_hidden_files_can_be_read(lake: Lake) -> None:
    replace(lake, 3)
    (lake.folder / ".lock").unlink()
    assert lost(lake) == [3, 3]
