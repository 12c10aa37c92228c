"""The callbacks of the conformance suite: they store what a driver calls back with, and let a check wait for it."""

import threading
from collections import Counter
from collections.abc import Callable

from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import Point


class Collector:
    """Receives envelopes on a driver's thread and lets a test wait for them, at most ``patience`` seconds."""

    def __init__(self, patience: float | Callable[[], float]) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self.envelopes: list[Envelope] = []
        self.threads: set[int] = set()
        self.overlapped = False
        self._inside = 0
        self.hook: Callable[[Envelope], None] = lambda envelope: None
        """Called at the end of each call, for tests of callbacks that block or raise."""

    def __call__(self, envelope: Envelope) -> None:
        """The callback itself."""
        with self._changed:
            self._inside += 1
            self.overlapped = self.overlapped or self._inside > 1
            self.threads.add(threading.get_ident())
            self.envelopes.append(envelope)
            self._changed.notify_all()
        try:
            self.hook(envelope)
        finally:
            with self._changed:
                self._inside -= 1

    def points(self, topic: str) -> list[Point]:
        """Points of the links received completely on this topic, in the order in which they were completed."""
        parts: Counter[Point] = Counter()
        whole = []
        for envelope in self.envelopes:
            for message in envelope.messages:
                if envelope.topic == topic:
                    parts[message.link.point] += 1
                    if parts[message.link.point] % message.parts == 0:  # a link received twice counts twice
                        whole.append(message.link.point)
        return whole

    def hellos(self, nonce: str) -> list[Hello]:
        """Hello replies with this nonce."""
        return [each.hello for each in list(self.envelopes) if each.hello is not None and each.hello.nonce == nonce]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition is true; AssertionError after the patience."""
        patience = self._patience() if callable(self._patience) else self._patience
        if not self.waits(condition, patience):
            raise AssertionError(f"after {patience} s still not: {what}; {len(self.envelopes)} envelopes came")

    def waits(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether the condition becomes true within ``seconds``; checked at every envelope and at the end."""
        with self._changed:
            return bool(self._changed.wait_for(condition, seconds))


class Connections:
    """The callback ``on_connected``, which counts its calls; a thread of the driver calls it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0
        self.hook: Callable[[], None] = lambda: None
        """Called at the end of each call, for tests that act at a connection."""

    def __call__(self) -> None:
        """The callback itself."""
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        self.hook()

    def until_more_than(self, before: int, patience: float, half: str) -> None:
        """Wait for the next call; AssertionError after the patience."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.count > before, patience):
                raise AssertionError(f"on_connected of the {half} was not called within {patience} s of a connection")
