"""Reads an append file frame by frame: memory does not depend on the size of the file, which may still grow."""

import os
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Final, Self

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import being_written
from pubsub_lib.journal.entries import MAGIC, MAX_FRAME, PREFIX, checksum_of, header_of

PAUSE: Final = 0.5
"""Seconds between two looks. The kernel needs far less for a record; half a record that stays as long stays torn."""
LOOKS: Final = 6
"""The number of looks after which a record that still ends beyond the end of a growing file has a damaged length. The
write of a true record would have to take longer than all pauses."""


class AppendReader:
    """A context manager. One thread at a time.

    ``header``: the writer of the file. ``torn``: after ``frames`` has ended, the number of bytes after the last whole
    frame; ``damaged``: whether they are other bytes than the begin of one frame.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and read its header. Raises OSError, and JournalError: not a journal, newer schema."""
        self.torn = 0
        self.damaged = False
        self._path = path
        self._file = path.open("rb")
        try:
            self._size = self._until = os.fstat(self._file.fileno()).st_size
            if self._file.read(len(MAGIC)) != MAGIC:
                raise JournalError(f"{path} is not a journal; remove it from the journals' folder")
            self._at = len(MAGIC)
            self.header = header_of(self._frame() or b"", str(path))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def frames(self) -> Iterator[bytes]:
        """The bodies of the frames after the header, up to the size that the file had when it was opened, or to the
        first frame that is not whole.

        Blocks while it reads, and for some seconds at most when the last frame of a locked file is not whole: it may be
        being written. Raises OSError.
        """
        while self._at < self._until:
            body = self._frame()
            if body is None and not self.damaged:
                body = self._completed()
            if body is None:
                self.torn = self._look() - self._at
                return
            yield body

    def _frame(self) -> bytes | None:
        """The body of the next frame; None when the frame is not whole, and ``damaged`` when other bytes are there."""
        prefix = self._file.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return None
        length, checksum = PREFIX.unpack(prefix)
        end = self._at + PREFIX.size + length
        self.damaged = length > MAX_FRAME
        if self.damaged or (end > self._size and end > self._look()):
            return None
        body = self._file.read(length)
        if len(body) < length:
            return None  # its writer has removed it again
        self.damaged = checksum_of(body) != checksum
        if self.damaged:
            return None
        self._at = end
        return body

    def _completed(self) -> bytes | None:
        """The next frame, which would end beyond the end of the file, when a process still writes it."""
        before = self._size
        for _ in range(LOOKS - 1):
            written = self.being_written()
            if written:
                sleep(PAUSE)
            self._file.seek(self._at)
            body = self._frame()
            if body is not None or self.damaged or not written:
                return body
            if self._look() == before:
                return None  # another process converts the file of a killed writer
            before = self._size
        self.damaged = True
        return None

    def being_written(self) -> bool:
        """Whether a process writes the file. Raises OSError."""
        try:
            return being_written(self._path)
        except FileNotFoundError:  # it was converted to Parquet, so its writer has ended
            return False

    def _look(self) -> int:
        """The present size of the file."""
        self._size = os.fstat(self._file.fileno()).st_size
        return self._size
