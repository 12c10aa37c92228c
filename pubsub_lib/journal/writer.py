"""Writing a journal. Disk errors never stop the sync: lost records are counted, and their numbers are missing."""

import atexit
import os
import socket
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import NO_STORE, ZERO, Link, Point, Record
from pubsub_lib.journal.appending import OPEN_SUFFIX, AppendFile
from pubsub_lib.journal.entries import Entry, Header, beginning, frame_parts
from pubsub_lib.journal.roller import Roller
from pubsub_lib.journal.rows import PLAIN, Kind, Outcome, Side
from pubsub_lib.journal.settings import JournalSettings
from pubsub_lib.logs import logger

_log = logger(__name__)

SLICE: Final = 1000
"""Objects in one entry of a listing: a frame stays small, and the lock is released in between."""


_LAST: Final = -100  # priority: after all other finalizers of multiprocessing at the end of a process


class _Run:
    """The journal of one process: its file and its running numbers."""

    def __init__(self, settings: JournalSettings, side: Side, name: str, schema: int) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._about = schema, side, name
        self.run = uuid.uuid4().hex
        self.lock = threading.Lock()
        self._buffer = bytearray()
        self.number = 0
        self.written = 0
        self.lost = 0
        self.error = ""
        self.store_id = NO_STORE
        self._part = 0
        self._file: AppendFile | None = None
        self._opened = 0.0
        self._closed = False
        self._stop = threading.Event()
        self.roller = Roller(settings, self._complain)
        """Used by the journal's thread only."""
        self.rejected: Callable[[], Mapping[str, int]] = dict
        self._recording = threading.Lock()
        """Held while rejects are recorded: the thread of the marks and ``close`` may record them at once."""
        self._recorded: dict[str, int] = {}
        """How many rejects of each cause are recorded."""
        self._complaints: set[str] = set()
        self._pid = os.getpid()
        # A process that ends without closing must not look like a killed one. Processes of multiprocessing run only
        # the latter handler, and after a fork only handlers that were registered in them.
        atexit.register(self._end)
        self._finalize = Finalize(None, self._end, exitpriority=_LAST)
        self.put("open")
        threading.Thread(target=_keep_time, args=(self, self._stop), name="pubsub-journal", daemon=True).start()

    def put(
        self, kind: Kind, outcomes: Sequence[Outcome] = (), service: str = "", uuid: str = "", topic: str = "",
        sequence: int = 0, messages: Sequence[Message] = (), objects: Sequence[Record] = (), point: Point = ZERO,
        prev: Point = ZERO, cause: str = "", peer: str = "", size: int = 0, count: int = 0, digest: int = 0,
    ) -> None:  # fmt: skip
        with self.lock:
            if self._closed:
                return
            self._closed = kind == "close"  # no record follows it
            number = self.number + 1
            wall, mono = time.time_ns() // 1000, time.monotonic_ns() // 1000
            entry = Entry(
                number, wall, mono, kind, outcomes, service, uuid, topic, sequence, messages, objects, point, prev,
                cause, peer, size, count, digest,
            )  # fmt: skip
            records = len(messages) or len(objects) or 1
            self.number += records
            if self._file is None:
                self._open_file()
            if self._file is not None:
                try:
                    self._file.append(*frame_parts(entry, self._buffer))
                except OSError as error:
                    self._failed(error)
                except Exception:  # noqa: BLE001 - only this record is lost, and the sync goes on
                    self._complain("a record of the journal cannot be encoded and is lost; please report this")
                else:
                    self.written += records
                    return
            self.lost += records

    def _open_file(self) -> None:
        """Try to open a file. After a failure only marks retry it: a broken disk must not be tried for each message."""
        if self.error and not self._may_try_again():
            return
        part = self._part + 1  # a number without a file would look like a lost file
        self._opened = time.monotonic()
        path = self._folder / f"{self.run}-{part:06d}{OPEN_SUFFIX}"
        try:
            header = Header(*self._about, socket.gethostname(), self.run, part)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = AppendFile(path, beginning(header))
        except Exception as error:  # noqa: BLE001 - a name that is not valid Unicode must not stop the sync either
            self._failed(error)
        else:
            self._part, self.error = part, ""

    def _may_try_again(self) -> bool:
        return time.monotonic() - self._opened >= self._settings.mark_seconds

    def _failed(self, error: Exception) -> None:
        why = f"{getattr(error, 'strerror', None) or error}"
        if self._file is not None:
            self._file.close()
            self._file = None
            self._opened = time.monotonic()
        if not self.error:
            _log.error(
                "the journal in %s cannot be written (%s): its records are lost and counted, the sync goes on; "
                "free disk space or correct the folder's rights",
                self._folder,
                why,
            )
        self.error = why

    def _complain(self, sentence: str) -> None:
        """Log a sentence once, with the traceback of the current exception, if any."""
        if sentence not in self._complaints:
            self._complaints.add(sentence)
            _log.error(sentence, exc_info=sys.exc_info()[0] is not None)

    def maintain(self) -> None:
        """Write a mark, finish a full or old file, start the compaction; called by the journal's thread."""
        self._note_rejected()
        self.put("mark", peer=self.store_id.hex())
        with self.lock:
            file, settings, now = self._file, self._settings, time.monotonic()
            old = now - self._opened >= settings.roll_seconds
            if file is not None and not self._closed and (file.size >= settings.roll_bytes or old):
                file.close()
                self._file = None
                self._open_file()
                due, begun = True, self._file is not None
            else:
                # The compaction removes old files, which frees a full disk, where no new file can begin.
                broken = bool(self.error) and not self._closed
                due, begun = broken and now - self.roller.started >= settings.roll_seconds, False
        if begun:
            self.put("mark", peer=self.store_id.hex())  # a file without a record looks like one whose records are lost
        if due:
            self.roller.start()

    def _note_rejected(self) -> None:
        try:
            counted = dict(self.rejected())
        except Exception:  # noqa: BLE001 - neither marks nor the end of the run may fail for it
            self._complain("the counters of rejected messages cannot be read and are not recorded; please report this")
            return
        with self._recording:
            for cause, number in counted.items():
                more = number - self._recorded.get(cause, 0)
                if more > 0:
                    self._recorded[cause] = number
                    self.put("reject", cause=cause, count=more)

    def _end(self) -> None:
        if os.getpid() == self._pid:  # a forked child inherits this handler, and the parent's lock and file
            self.close()

    def close(self) -> None:
        atexit.unregister(self._end)
        self._finalize.cancel()
        self._stop.set()
        if not self._closed:
            self._note_rejected()
        self.put("close", peer=self.store_id.hex())
        with self.lock:
            self._release()

    def abandon(self) -> None:
        """In a forked child: close the parent's file, whose lock would otherwise outlive the parent."""
        self._pid = 0  # so that ``_end`` does nothing, even if this process has the id of a process that wrote it
        self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def mark_seconds(self) -> float:
        return self._settings.mark_seconds


def _keep_time(run: _Run, stop: threading.Event) -> None:
    step = run.roller.start_for_left_files
    while True:
        try:
            step()
        except Exception:  # noqa: BLE001 - the journal must neither stop the sync nor die
            _log.exception("the maintenance of a journal failed by an internal error; please report this")
        if stop.wait(run.mark_seconds):
            return
        step = run.maintain


class Journal:
    """One participant's journal. All methods may be called from any thread and never raise because of the disk.

    Each writes its record before it returns, in one ``write`` to the kernel: call it *before* the message is sent or
    the change applied. After a fork the child's first record begins a new run for the child.
    """

    def __init__(self, settings: JournalSettings, side: Side, name: str, schema: int = PLAIN) -> None:
        """``side`` and ``name`` of the participant (a service's, relay's or replica's name); ``schema``: ``SCHEMA`` for
        a relay and for a replica with parents. Writes the first record.
        """
        self._settings = settings
        self._about = side, name, schema
        self._runs: dict[int, _Run] = {}
        """By process id. A lock inherited by a fork may be held for ever, so each process creates new locks."""
        ours = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget_parent(ours()))
        self._run()

    @property
    def run(self) -> str:
        """The run's id: 32 hex digits, new for every process and journal."""
        return self._run().run

    def of_store(self, store_id: bytes) -> None:
        """From now on marks and the end of the run have the id of this store. ``store_id``: 16 bytes, or none."""
        run = self._run()
        run.store_id = store_id or run.store_id

    def messages(self, outcomes: Sequence[Outcome], envelope: Envelope, cause: str = "") -> None:
        """The messages of an envelope, with one outcome for all of them or one for each."""
        run = self._run()
        if outcomes[0] == "sent":
            run.store_id = envelope.store_id or run.store_id
        run.put(
            "data", outcomes, envelope.service, envelope.uuid, envelope.topic, envelope.sequence, envelope.messages,
            cause=cause,
        )  # fmt: skip

    def links(self, outcome: Outcome, links: Sequence[Link], cause: str = "") -> None:
        """Links without an envelope: committed, handed over, or applied from a delta."""
        if links:
            self._run().put("data", (outcome,), messages=[Message(link) for link in links], cause=cause)

    def note(
        self,
        kind: Kind,
        *,
        topic: str = "",
        sequence: int = 0,
        outcome: Outcome = "",
        cause: str = "",
        peer: str = "",
        service: str = "",
        uuid: str = "",
        point: Point = ZERO,
        prev: Point = ZERO,
        size: int = 0,
        count: int = 0,
        digest: int = 0,
    ) -> None:
        """Any record without messages; docs/audit.md, "Journals" lists the columns that a kind uses."""
        self._run().put(
            kind, (outcome,) if outcome else (), service, uuid, topic, sequence, point=point, prev=prev, cause=cause,
            peer=peer, size=size, count=count, digest=digest,
        )  # fmt: skip

    def watch(self, rejected: Callable[[], Mapping[str, int]]) -> None:
        """Record counters of rejected messages by cause: the increase since the last mark, at each mark and the end.

        ``rejected`` is called by the journal's thread and by ``close``; it must neither block nor raise.
        """
        self._run().rejected = rejected

    def listing(self, number: int, topic: str, point: Point, objects: Sequence[Record]) -> None:
        """All objects of a topic at ``point``. ``number`` identifies the listing within the run."""
        run = self._run()
        for start in range(0, len(objects), SLICE):
            part = objects[start : start + SLICE]
            run.put("object", topic=topic, sequence=number, objects=part, point=point)
        run.put("listing", topic=topic, sequence=number, point=point, count=len(objects))

    def counters(self) -> dict[str, int]:
        """``written`` and ``lost`` records of this process."""
        run = self._run()
        return {"written": run.written, "lost": run.lost}

    @property
    def error(self) -> str:
        """Why records are being lost now; "" while no records are being lost."""
        return self._run().error

    def close(self) -> None:
        """Write the last record and release the file. Idempotent; later records are ignored."""
        self._run().close()

    def _run(self) -> _Run:
        run = self._runs.get(os.getpid())
        if run is None:
            with _begin:
                run = self._runs.get(os.getpid())
                if run is None:
                    run = self._runs[os.getpid()] = _Run(self._settings, *self._about)
        return run

    def _abandon(self) -> None:
        """In a forked child: all runs belong to its ancestors, also one with the same process id."""
        for run in self._runs.values():
            run.abandon()
        self._runs.clear()


def open_journal(settings: JournalSettings, side: Side, name: str, schema: int = PLAIN) -> Journal | None:
    """The journal of a participant; None when the settings name no folder. Never raises because of the disk."""
    return Journal(settings, side, name, schema) if settings.folder else None


_begin = threading.Lock()


def _forget_parent(journal: Journal | None) -> None:
    global _begin
    _begin = threading.Lock()  # the parent's may be held by a thread that does not exist here
    if journal is not None:
        journal._abandon()
