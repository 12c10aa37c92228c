"""Starting compactions of a journals' folder. Each is a process of its own: the conversion costs more time than the
writing, and must not slow down this process.
"""

import contextlib
import fcntl
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pubsub_lib.journal.appending import OPEN_SUFFIX, being_written
from pubsub_lib.journal.settings import JournalSettings
from pubsub_lib.logs import logger

_log = logger(__name__)

LOG_NAME: Final = ".compaction"
"""The file for the messages of the last compaction that was started for the files of ended processes. Locked while that
compaction runs."""
_LONGEST: Final = 3600.0
"""Seconds after which a compaction that seems to run does not prevent the next one."""


class Roller:
    """Starts the compactions of one run. Not thread-safe. ``complain`` logs a sentence once."""

    def __init__(self, settings: JournalSettings, complain: Callable[[str], None]) -> None:
        self._settings = settings
        self._complain = complain
        self._folder = Path(settings.folder)
        self.process: subprocess.Popen[bytes] | None = None
        self.started = -math.inf
        """When a compaction was started last, by ``time.monotonic``."""

    def start(self) -> None:
        """Start a compaction, unless the last one still runs. With ``to_parquet`` False there is none."""
        if self._settings.to_parquet and not self._runs():
            self._start(None)

    def start_for_left_files(self) -> None:
        """Start one when an ended process has left a finished file for ``roll_seconds``. Processes that live for a
        shorter time start none for their own files, so the next process of the folder does. All processes of the folder
        together start one such compaction at once, and one in ``roll_seconds``.
        """
        seconds = self._settings.roll_seconds
        if not self._settings.to_parquet or self._runs() or not _is_left(self._folder, seconds):
            return
        try:
            log = _take_turn(self._folder / LOG_NAME, seconds)
        except OSError:  # a full disk is no reason: retention is to free it
            log = subprocess.DEVNULL
        if log is None:
            return
        try:
            self._start(log)
        finally:
            if log >= 0:
                os.close(log)

    def _runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _start(self, errors: int | None) -> None:
        """``errors``: a descriptor for the messages. None: this process's own, which must outlive the compaction."""
        if not sys.executable:  # an embedded interpreter
            self._complain(
                "journals are not converted to Parquet: this process has no Python program (sys.executable is empty); "
                "set to_parquet to false and call pubsub_lib.journal.compaction.compact from another process"
            )
            return
        settings = self._settings
        self.started = time.monotonic()
        command = [sys.executable, "-m", "pubsub_lib.journal.compaction", settings.folder]
        command += [str(settings.keep_bytes), str(settings.keep_seconds)]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                # Python closes its descriptors in the child by itself. Otherwise Popen waits for the end of a process
                # that another thread forks at this moment: it inherits the pipe in which Popen waits for errors.
                close_fds=False,
            )  # fmt: skip
        except OSError as error:
            _log.warning("journals are not converted to Parquet: %s", error)


def _is_left(folder: Path, seconds: float) -> bool:
    """Whether a finished append file is older than this: a process that lives that long would have converted it."""
    try:
        with os.scandir(folder) as entries:
            found = [each.path for each in entries if each.name.endswith(OPEN_SUFFIX)]
    except OSError:  # the journal has logged that it cannot write there
        return False
    return any(_is_finished(Path(each), time.time() - seconds) for each in found)


def _is_finished(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before and not being_written(path)
    except OSError:  # another process has converted or removed it, or owns it
        return False


def _take_turn(path: Path, seconds: float) -> int | None:
    """The descriptor of the emptied and locked log; None when another process took its turn in the last ``seconds``, or
    when its compaction still runs. The turn is the log's time of change, which needs no room on a disk. Raises OSError.
    """
    log, is_new = _opened(path)
    try:
        if _is_due(log, seconds, is_new=is_new):
            os.ftruncate(log, 0)
            os.utime(log)
            with contextlib.suppress(OSError):  # a full disk: the messages are lost, too
                os.write(log, f"started by process {os.getpid()}\n".encode())
            return log
    except BaseException:
        os.close(log)
        raise
    os.close(log)
    return None


def _opened(path: Path) -> tuple[int, bool]:
    """The log, and whether it is new."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_EXCL, 0o600), True
    except FileExistsError:
        pass
    try:
        return os.open(path, flags, 0o600), False
    except PermissionError:  # of another user, for example of root; the owner of the folder may replace it
        path.unlink()
        return os.open(path, flags, 0o600), True


def _is_due(log: int, seconds: float, *, is_new: bool) -> bool:
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Usually by a compaction. But a process that was forked while the log was open here keeps the lock, too.
        seconds = max(seconds, _LONGEST)
    return is_new or not 0 <= time.time() - os.fstat(log).st_mtime < seconds
