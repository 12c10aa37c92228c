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
"""Seconds between two looks at the size of the terminal."""


class Top(Act):
    """Show a live screen: what is written and heard a second, who lags, what is missing. q or Ctrl-C ends it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """What to show."""
        parser = super().get_parser(prog_name)
        parser.add_argument("topics", metavar="TOPIC", nargs="*", help="a topic to show; none: all of them")
        parser.add_argument(
            "--interval", metavar="S", type=float, default=INTERVAL, help=f"seconds between two readings ({INTERVAL:g})"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Until a key or a signal. Raises ConfigError (no terminal), DriverError, TransportError, StoreError."""
        if not 0.1 <= parsed_args.interval < 1e6:
            raise ConfigError(f"--interval {parsed_args.interval} cannot be; give seconds from 0.1")
        topics = [check_name("topic", topic) for topic in parsed_args.topics]
        settings = settings_of(self)
        with keys() as pressed, reading(self) as store, _quiet():
            shown = _Shown(settings, topics)
            with listening(settings, store, topics or [ALL], shown.receive) as listener, shown.reading(
                store, listener, parsed_args.interval
            ):
                _run(shown, listener, pressed, parsed_args.interval)
        return exit_codes.OK


class _Shown:
    """The board, its lock, and who brings news to it."""

    def __init__(self, settings: Settings, topics: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._model = TopModel(time.monotonic(), topics)
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
        """Read the store every so many seconds, on a thread of its own: a database that hangs must not keep keys
        from being heard.
        """
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
        """What to draw now."""
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
            return  # it is being closed; what is not asked is not answered, and the lag shows as unknown
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
    """No log line may write into the screen; what matters is shown in it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
