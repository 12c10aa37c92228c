"""``pubsub-db top``."""

import argparse
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.live import Live

from pubsub_lib.cli.context import reading, settings_of
from pubsub_lib.cli.keyboard import Pressed, keys
from pubsub_lib.cli.listener import CLOSE_TIMEOUT, Listener, listening
from pubsub_lib.cli.message_rows import MessageRows
from pubsub_lib.cli.output import Act
from pubsub_lib.cli.top_model import TopModel
from pubsub_lib.cli.top_view import TopView
from pubsub_lib.command import exit_codes
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import ConfigError, PubSubError, TransportError
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store, url

INTERVAL: Final = 1.0
LOOK: Final = 0.1
"""Seconds between two checks of the terminal's size."""


class Top(Act):
    """Show a live screen: rates of written and received changes, lags, missing messages. q or Ctrl-C ends it."""

    example = "top tenant-1 --interval 2"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The topics and the interval."""
        parser.add_argument("topics", metavar="TOPIC", nargs="*", help="a topic to show (default: all topics)")
        parser.add_argument(
            "--interval",
            metavar="S",
            type=float,
            default=INTERVAL,
            help=f"seconds between two readings of the store (default: {INTERVAL:g})",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Runs until a key or a signal. Raises ConfigError (no terminal), DriverError, TransportError, StoreError."""
        if not 0.1 <= parsed_args.interval < 1e6:
            raise ConfigError(f"--interval must be a number of seconds from 0.1, not {parsed_args.interval}")
        topics = [check_name("topic", topic) for topic in parsed_args.topics]
        settings = settings_of(self)
        with keys() as pressed, reading(self) as store, _quiet():
            shown = _Shown(settings, topics, parsed_args.interval)
            with (
                listening(settings, store, topics or [ALL], shown.receive) as listener,
                shown.reading(store, listener, parsed_args.interval),
            ):
                _run(shown, listener, pressed, parsed_args.interval)
        return exit_codes.OK


class _Shown:
    """The model, its lock, and the two threads that update it."""

    def __init__(self, settings: Settings, topics: Sequence[str], interval: float) -> None:
        self._lock = threading.Lock()
        self._model = TopModel(time.monotonic(), topics, interval)
        self._message_rows = MessageRows()
        self._title = url.shown(settings.store_url)

    def receive(self, envelope: Envelope) -> None:
        """On the driver's thread."""
        now, hello = time.monotonic(), envelope.hello
        with self._lock:
            self._model.received(self._message_rows.feed(envelope, time.time()), now)
            if hello is not None and hello.nonce and hello.store is not None:
                self._model.answered(envelope.service, hello.nonce, hello.store.position, now)

    @contextmanager
    def reading(self, store: Store, listener: Listener, interval: float) -> Iterator[None]:
        """Read the store every ``interval`` seconds, on a separate thread: a blocked database must not block keys."""
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                self._read(store, listener)
                ended.wait(interval)

        thread = threading.Thread(target=read, name="pubsub-top", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(CLOSE_TIMEOUT)

    def screen(self, source: str) -> TopView:
        """The screen to draw now."""
        with self._lock:
            view = self._model.view(time.monotonic())
        return TopView(view, f"{self._title}  by {source}", datetime.now(UTC).strftime("%H:%M:%S UTC"))

    def _read(self, store: Store, listener: Listener) -> None:
        try:
            heads, entries = store.read_heads([ALL]), store.directory.entries()
        except PubSubError as error:
            with self._lock:
                self._model.failed(str(error))
            return
        with self._lock:
            self._model.stored(heads, entries, time.monotonic())
        try:
            nonces = listener.ask([ALL])
        except TransportError:
            return  # the subscriber is being closed; without an answer the lag shows as unknown
        with self._lock:
            self._model.asked(nonces)


def _run(shown: _Shown, listener: Listener, pressed: Pressed, interval: float) -> None:
    console = Console(highlight=False)
    with Live(
        shown.screen(listener.source), console=console, screen=True, auto_refresh=False, transient=True,
        vertical_overflow="crop",
    ) as live:  # fmt: skip
        size, draw_at = console.size, 0.0
        while True:
            if time.monotonic() >= draw_at or console.size != size:
                size, draw_at = console.size, time.monotonic() + interval
                live.update(shown.screen(listener.source), refresh=True)
            if pressed(LOOK) in ("q", "Q"):
                return


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log lines, because they would be written into the screen. The screen shows errors of the store."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
