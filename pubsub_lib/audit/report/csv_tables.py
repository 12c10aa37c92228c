"""CSV for people: tables of an audit beside their Parquet files (docs/audit.md, "CSV"). Needs no Spark."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

_FORMULA: Final = r"^([\t\r\n]|\s*[=+\-@＝＋－＠])"
_TIMES: Final = ("p", "settled", "detected", "written", "received", "began", "wall", "window", "came", "left")
"""Columns with a time: microseconds since 1970, which become text in UTC."""
_CALENDAR_END: Final = 253_402_300_800_000_000
"""The begin of the year 10000."""
_ROWS: Final = 16_384
"""Maximum number of rows in memory."""


def escaped(text: str) -> str:
    """The text with an apostrophe before it if a spreadsheet would run it as a formula."""
    return f"'{text}" if re.match(_FORMULA, text) else text


def lines(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV. Texts are escaped; None is an empty cell."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerows([escaped(each) if isinstance(each, str) else each for each in row] for row in rows)
    return output.getvalue()


def write_csv(folder: Path, file: Path, columns: Sequence[str]) -> None:
    """Write all Parquet files below ``folder`` as one CSV file with a header of these columns. A column that the files
    lack is named by their folders (``column=value``). Holds a bounded number of rows. Raises OSError.
    """
    with file.open("wb") as output:
        output.write(lines([columns]).encode())
        for part in sorted(folder.rglob("*.parquet")):
            _write(part, output, columns, _of_folders(part.relative_to(folder)))


def _of_folders(path: Path) -> dict[str, str]:
    pairs = (each.partition("=") for each in path.parts[:-1])
    return {name: unquote(value) for name, _, value in pairs}


def _write(part: Path, output: io.BufferedWriter, columns: Sequence[str], constants: Mapping[str, str]) -> None:
    with pq.ParquetFile(part) as opened:
        for batch in opened.iter_batches(_ROWS):
            cells = dict(_cells(batch, columns, constants))
            pa_csv.write_csv(pa.table(cells), output, pa_csv.WriteOptions(include_header=False))


def _cells(
    batch: pa.RecordBatch, columns: Sequence[str], constants: Mapping[str, str]
) -> Iterator[tuple[str, pa.Array]]:
    for name in columns:
        found = pa.repeat(constants[name], len(batch)) if name in constants else batch[name]
        if pa.types.is_string(found.type) or pa.types.is_large_string(found.type):
            found = pc.if_else(
                pc.match_substring_regex(found, _FORMULA), pc.binary_join_element_wise("'", found, ""), found
            )
        yield name, _time(found) if name in _TIMES else found


def _time(walls: pa.Array) -> pa.Array:
    """Times as text in UTC. A value outside of the calendar (a wrong clock) stays a number."""
    known = pc.and_(pc.greater(walls, 0), pc.less(walls, _CALENDAR_END))
    inside = pc.if_else(known, walls, None).cast(pa.timestamp("us"))
    return pc.coalesce(pc.strftime(inside, format="%Y-%m-%d %H:%M:%S"), walls.cast(pa.string()))
