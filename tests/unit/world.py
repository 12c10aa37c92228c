"""Settings and helpers for tests of publishers and replicas: SQLite, a bus for each test, and short times."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from _patience import longest

from pubsub_lib import Replica, Settings, Timing
from pubsub_lib.core.handler_queue import HandlerPolicy

QUICK = Timing(
    max_idle_time=0.3,
    message_delay_window=0.1,
    hello_wait=1.0,
    reading_age=0.1,
    round_trip=0.2,
    poll_interval=0.1,
    sync_jitter=0.01,
    sync_interval=0.02,
    sync_backoff=0.05,
    max_sync_backoff=0.2,
    sync_timeout=10.0,
)
LONG = longest(120.0)
_buses = itertools.count()


def settings(url: str, **changes: Any) -> Settings:
    """Settings of one test, with a bus that no other test uses."""
    given: dict[str, Any] = {
        "store_url": url,
        "driver": "memory",
        "service_name": "writer",
        "timing": QUICK,
        "handling": HandlerPolicy(tries=3, backoff=0.01, max_backoff=0.05),
        "paranoid": True,
        "driver_options": {"bus": f"test-{next(_buses)}"},
    }
    return Settings(**{**given, **changes})


class Recorder:
    """A handler that records its changes."""

    def __init__(self, react: Callable[[Any], None] = lambda change: None) -> None:
        self.changes: list[Any] = []
        self._react = react

    def __call__(self, change: Any) -> None:
        self.changes.append(change)
        self._react(change)

    @property
    def brief(self) -> list[tuple[str, str, Any]]:
        """(action, key, new value) of each change."""
        return [(change.action, change.key, change.new) for change in self.changes]


@contextmanager
def busy(replica: Replica) -> Iterator[None]:
    """Another thread holds the replica's lock during the block."""
    holds, free = threading.Event(), threading.Event()

    def hold(state: object) -> None:
        holds.set()
        free.wait()

    holder = threading.Thread(target=replica._engine.read, args=(hold,), name="holder")
    holder.start()
    try:
        assert holds.wait(LONG)
        yield
    finally:
        free.set()
        holder.join(LONG)
