"""The end of an append file that a process has locked: half a record that is being written, or missing evidence.

The lock alone does not show which. Its holder may be the writer, or a compaction that converts the file of a killed
writer. And a damaged length hides all records that the writer appends behind it.
"""

from pathlib import Path
from time import sleep
from typing import Literal

from pubsub_lib.journal.entries import is_cut_at, whole_until
from pubsub_lib.journal.streaming import LOOKS, PAUSE

End = Literal["written", "torn", "damaged"]
"""``written``: a record was being written. ``torn``: a record is not whole, and no process completes it.
``damaged``: bytes that are no record stay before later bytes."""


def end_of(path: Path) -> End:
    """The state of the end of a locked append file whose last record was not whole. Reads the file again, after a pause
    each time. Blocks for some seconds at most, and while it reads. Raises OSError; FileNotFoundError: it was converted.
    """
    size, end, _ = _look(path)
    if end == size:
        return "written"
    for _ in range(LOOKS - 1):
        sleep(PAUSE)
        before = size
        size, now, cut = _look(path)
        if now != end or now == size:
            return "written"
        if not cut:
            return "damaged"
        if size == before:
            return "torn"
    return "damaged"


def _look(path: Path) -> tuple[int, int, bool]:
    """The size of the file, the offset after its last whole record, and whether the next one would end beyond its end.
    Records are not decoded.
    """
    data = path.read_bytes()
    end = whole_until(data)
    return len(data), end, is_cut_at(data, end)
