"""``pubsub-db watch``."""

import argparse
import math
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pubsub_lib.cli.context import reading, settings_of
from pubsub_lib.cli.formatting import duration
from pubsub_lib.cli.listener import Listener, listening
from pubsub_lib.cli.message_rows import MessageRows, ReceivedMessage
from pubsub_lib.cli.output import List
from pubsub_lib.cli.row_printer import Column, RowPrinter
from pubsub_lib.command import exit_codes
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import ConfigError

MAX_WAITING: Final = 100_000
"""Maximum number of rows that wait to be printed; more are counted and dropped. Holes are counted before that, so a
dropped row does not look like a hole."""
ASK_AGAIN: Final = 0.2
"""Seconds between two hello requests until the first publisher replies."""

_COLUMNS: Final = (
    Column("time", width=8),
    Column("kind", width=5, hidden=True),
    Column("topic", weight=3),
    Column("service", weight=3),
    Column("uuid", width=32, hidden=True),
    Column("sequence", "seq", width=6, right=True),
    Column("position", width=8, right=True),
    Column("changes", "chg", width=4, right=True),
    Column("latency", width=7, right=True),
    Column("holes", weight=4),
    Column("missing", width=12, hidden=True),
    Column("note", width=20, hidden=True),
)


class Watch(List):
    """Show messages as they arrive: sender, sequence, position, latency, and missing messages.

    The command listens as a replica does, with the driver of the INI file. The latency is the time from the writer's
    commit to this process, by the clocks of the two hosts. Ctrl-C ends the command.
    """

    example = "watch tenant-1 --count 10"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The topics, and when to end."""
        parser.add_argument("topics", metavar="TOPIC", nargs="*", help="a topic to listen to (default: all topics)")
        parser.add_argument("--count", metavar="N", type=int, help="end after N messages")
        parser.add_argument("--seconds", metavar="S", type=float, help="end after S seconds")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Not used: ``run`` prints rows as they arrive."""
        raise NotImplementedError

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print rows until ``--count``, ``--seconds`` or Ctrl-C. Returns the exit code."""
        count, seconds = parsed_args.count, parsed_args.seconds
        if (count is not None and count < 1) or (seconds is not None and not 0 < seconds < 1e9):
            raise ConfigError("--count must be a number from 1, and --seconds a number above 0")
        topics = [check_name("topic", topic) for topic in parsed_args.topics] or [ALL]
        lines = RowPrinter.of(self, _COLUMNS, parsed_args)
        message_rows = MessageRows()
        answered = threading.Event()
        rows: queue.Queue[ReceivedMessage] = queue.Queue(MAX_WAITING)
        left_out = 0

        def receive(envelope: Envelope) -> None:
            nonlocal left_out
            answered.set()
            for row in message_rows.feed(envelope, time.time()):
                try:
                    rows.put_nowait(row)
                except queue.Full:
                    left_out += 1

        settings = settings_of(self)
        end = time.monotonic() + seconds if seconds is not None else math.inf
        try:
            with reading(self) as store, listening(settings, store, topics, receive) as listener:
                wait = max(0.0, min(end - time.monotonic(), settings.timing.hello_wait))
                self._await_answer(listener, topics, answered, wait)
                shown, ask_at = 0, 0.0
                while (now := time.monotonic()) < end and (count is None or shown < count):
                    if now >= ask_at:
                        # As a replica does: only a hello reply shows a lost message that no later message follows.
                        listener.ask(topics)
                        ask_at = now + settings.timing.max_idle_time
                    try:
                        row = rows.get(timeout=min(end, ask_at) - now)
                    except queue.Empty:
                        continue
                    lines.row(*cells(row))
                    shown += 1
        finally:  # also at Ctrl-C
            if left_out:
                self.app.LOG.warning("%d messages were received but not shown: the output was too slow", left_out)
        return exit_codes.OK

    def _await_answer(
        self, listener: Listener, topics: Sequence[str], answered: threading.Event, timeout: float
    ) -> None:
        """Log that the command listens, after the first reply: a reply proves that a connection is established."""
        until = time.monotonic() + timeout
        while not answered.is_set() and time.monotonic() < until:
            listener.ask(topics)
            answered.wait(ASK_AGAIN)
        what = "everything" if topics == [ALL] else ", ".join(topics)
        where = f" at {', '.join(listener.addresses)}" if listener.addresses else ""
        listens = f"listening to {what} by {listener.source}{where}; Ctrl-C ends it"
        if answered.is_set():
            self.app.LOG.info("%s", listens)
        else:
            self.app.LOG.warning("no publisher has answered within %s; %s", duration(timeout), listens)


def cells(row: ReceivedMessage) -> tuple[Sequence[Any], Sequence[str]]:
    """A row for programs (latency in milliseconds) and for people."""
    at = datetime.fromtimestamp(row.at, UTC)
    values = (
        at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), row.kind, row.topic, row.service, row.uuid,
        row.sequence, row.position, row.changes, None if row.latency is None else round(row.latency * 1000, 3),
        row.holes, row.missing, row.note,
    )  # fmt: skip
    lost = f"{row.holes} missing: {row.missing}" if row.holes else ""
    shown = [str(each) for each in values]
    shown[0] = at.strftime("%H:%M:%S")
    shown[8] = "" if row.latency is None else duration(row.latency)
    shown[9] = "; ".join(each for each in (lost, row.note) if each)
    return values, shown
