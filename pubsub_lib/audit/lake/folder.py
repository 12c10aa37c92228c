"""The folder of a lake: one Parquet file for each table and day, all files of an append replaced together.

An append writes its files to ``.new``, and then renames that folder to ``.ready``: from then on it is complete. The
files are moved to their places afterwards. A reader takes a file from ``.ready`` if it is there, and the next append
moves the files that a killed process left.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pubsub_lib import failpoints
from pubsub_lib.audit.durable import sync, write_whole
from pubsub_lib.audit.lake.tables import SCHEMAS, VERSION, Tables
from pubsub_lib.errors import ConfigError
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, check_seal, seal

ABOUT: Final = "lake.json"
VERSION_KEY: Final = b"pubsub_lib.lake.schema"
_LOCK, _NEW, _READY = ".lock", ".new", ".ready"
_FILE: Final = "part-0.parquet"
_SET_ASIDE: Final = "_part-0.damaged"
"""Readers of folders of Parquet files skip names that begin so."""
_DAY: Final = "day="


class About(msgspec.Struct, frozen=True):
    """What all days of a lake have in common. ``window``: microseconds. ``domains``: their first days, which may be
    removed. ``removed_before``: days before it were removed or not added, by ``--keep-days``; "": none.
    """

    schema: int
    window: int
    domains: Mapping[str, str] = {}
    removed_before: str = ""


class Damaged(Exception):
    """A file of a lake that cannot be used; the text is a sentence that names it."""


def is_lake(folder: Path) -> bool:
    """Whether the folder has the file that each lake has. Raises OSError when the folder may not be searched."""
    return (folder / ABOUT).is_file() or (folder / _READY / ABOUT).is_file()


class Lake:
    """Reads a lake, and replaces days of it. One thread uses an object; processes exclude each other by a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self, *, write: bool) -> Iterator[None]:
        """Hold the lock of the lake: alone to write, with other readers to read. Blocks while another process writes.
        Raises OSError.
        """
        try:
            fd = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY, 0o644)
        except FileNotFoundError:
            if write:
                raise
            yield  # a copy without hidden files, to which no process appends
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
            if write:
                self._recover()
            yield
        finally:
            os.close(fd)

    def about(self) -> About:
        """The data of ``lake.json``. Raises ConfigError when this is not a lake, or one of a newer version."""
        path = self._current(Path(ABOUT))
        try:
            found = msgspec.json.decode(path.read_bytes(), type=About)
        except OSError as error:
            raise ConfigError(
                f"{self.folder} is not a folder of --append ({path.name} cannot be read: {error.strerror})"
            ) from error
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} is not the description of a folder of --append ({error})") from error
        if found.schema > VERSION:
            raise ConfigError(_newer(self.folder, found.schema))
        return found

    def days(self) -> list[date]:
        """All days that have a file, in order. Raises OSError."""
        names = {
            each.name.removeprefix(_DAY)
            for root in (self.folder, self.folder / _READY)
            for table in SCHEMAS
            for each in (root / table).glob(f"{_DAY}*")
        }
        return sorted(day for name in names if (day := _date(name)) is not None)

    def read(self, table: str, day: date) -> pa.Table:
        """A table of a day; without rows when the day has no file. Blocks while it reads. Raises Damaged, ConfigError
        for a newer version, and OSError.
        """
        path = self._current(_place(table, day))
        try:
            if not path.exists():
                return SCHEMAS[table].empty_table()
            sealed = check_seal(path)
            # Not by the name of a file: the folder's name would become a column.
            with path.open("rb") as file:
                found = pq.read_table(file)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise Damaged(f"{path} is damaged ({str(error).splitlines()[0]})") from error
        version = (found.schema.metadata or {}).get(VERSION_KEY, b"")
        if version.isdigit() and int(version) > VERSION:
            raise ConfigError(_newer(path, int(version)))
        if sealed != "right":
            raise Damaged(f"{path} is damaged (it does not match its checksum)")
        if not found.schema.equals(SCHEMAS[table]):
            raise Damaged(f"{path} is damaged (it has other columns)")
        return found.replace_schema_metadata()

    def damaged(self, day: date) -> list[str]:
        """A sentence for each file of the day that an append set aside."""
        places = [self.folder / _place(table, day).with_name(_SET_ASIDE) for table in SCHEMAS]
        return [f"{path} was damaged and set aside" for path in places if path.exists()]

    def set_aside(self, table: str, day: date) -> None:
        """Rename a damaged file, so that it is not read again. Raises OSError."""
        path = self.folder / _place(table, day)
        path.replace(path.with_name(_SET_ASIDE))

    def replace(self, about: About, days: Mapping[date, Tables]) -> None:
        """Replace all tables of these days, and ``lake.json``: all or nothing. The caller holds the lock to write.
        Blocks until the files are on the disk. Raises OSError; then the lake is as before.
        """
        new = self.folder / _NEW
        try:
            new.mkdir()
            write_whole(new / ABOUT, msgspec.json.format(msgspec.json.encode(about)))
            for day, tables in days.items():
                for name, schema in SCHEMAS.items():
                    path = new / _place(name, day)
                    path.parent.mkdir(parents=True)
                    _write(tables[name].select(schema.names).cast(schema), path)
            failpoints.hit("lake.before_ready")
            new.rename(self.folder / _READY)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        self._recover()

    def remove(self, day: date) -> None:
        """Remove a day. The caller holds the lock to write. Raises OSError."""
        # Without its coverage the day counts as a day without a result.
        for table in sorted(SCHEMAS, key=lambda name: name != "coverage"):
            folder = (self.folder / _place(table, day)).parent
            if folder.exists():
                shutil.rmtree(folder)

    def _current(self, place: Path) -> Path:
        ready = self.folder / _READY / place
        return ready if ready.exists() else self.folder / place

    def _recover(self) -> None:
        """Move the files of a complete append to their places, and remove those of an unfinished one."""
        shutil.rmtree(self.folder / _NEW, ignore_errors=True)
        ready = self.folder / _READY
        if not ready.exists():
            return
        for path in sorted(each for each in ready.rglob("*") if each.is_file()):
            place = self.folder / path.relative_to(ready)
            place.parent.mkdir(parents=True, exist_ok=True)
            failpoints.hit("lake.before_move")
            path.replace(place)
        shutil.rmtree(ready)


def prepare(folder: Path, window: int) -> None:
    """Make an empty lake unless the folder is one. ``window``: the length of its windows in microseconds.

    Raises ConfigError when the folder has other files, when its windows have another length, or when it cannot be
    written.
    """
    lake = Lake(folder)
    try:
        if not is_lake(folder):
            if folder.exists() and not (folder.is_dir() and _unused(folder)):
                raise ConfigError(f"{folder} is not empty and not a folder of --append; name a new folder")
            folder.mkdir(parents=True, exist_ok=True)
        with lake.locked(write=True):
            if not is_lake(folder):
                lake.replace(About(VERSION, window), {})
            found = lake.about()
    except OSError as error:
        raise not_written(folder, error) from error
    if found.window != window:
        raise ConfigError(
            f"{folder} has windows of {found.window / 1e6:g} s, and this audit {window / 1e6:g} s; give --window "
            f"{found.window / 1e6:g}, or name another folder"
        )


def not_written(folder: Path, error: OSError) -> ConfigError:
    """The error of an append."""
    return ConfigError(
        f"{folder} cannot be written ({error.strerror or error}), so nothing was added to it; check its permissions "
        "and its disk"
    )


def _unused(folder: Path) -> bool:
    """Whether the folder has no files but those of an unfinished ``prepare``."""
    return {each.name for each in folder.iterdir()} <= {_LOCK, _NEW}


def _place(table: str, day: date) -> Path:
    return Path(table) / f"{_DAY}{day}" / _FILE


def _date(name: str) -> date | None:
    try:
        found = date.fromisoformat(name)
    except ValueError:
        return None
    return found if str(found) == name else None


def _newer(path: Path, version: int) -> str:
    return f"{path} has the schema {version}; this version knows {VERSION}: update pubsub_lib"


def _write(table: pa.Table, path: Path) -> None:
    metadata = {VERSION_KEY: str(VERSION).encode(), CHECKSUM_KEY: UNSEALED}
    with path.open("wb") as file:  # its errors have a text, those of Arrow's own files not always
        pq.write_table(table.replace_schema_metadata(metadata), file, compression="zstd")
    seal(path)
    sync(path)
