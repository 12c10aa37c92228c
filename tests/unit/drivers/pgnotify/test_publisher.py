"""The announcing thread, with a connection that the test controls."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.errors import TransportError
from pubsub_pgnotify.publisher import NotifyingPublisher
from pubsub_pgnotify.session import OnAnswer
from tests.unit.drivers.pgnotify.session_double import LONG, SessionDouble

STORE = bytes(range(16))
CHANNEL = f"pubsub_{STORE.hex()}"


class Line(SessionDouble):
    """A session whose database answers a notification only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        """Whether the database does not answer."""
        self.arrived: list[Sequence[str]] = []
        """Begun notifications."""
        self.sent: list[Sequence[str]] = []
        self.waits = 0
        """Number of waits that have begun."""
        self.waiting = False
        self.threads: list[int] = []
        """Those that began a notification."""
        self._running: OnAnswer | None = None

    @property
    def retry_in(self) -> float:
        return LONG

    def connect(self, *statements: str) -> bool:
        if self.connected or not self.up:
            return False
        self.connected = True
        self.counts["connections"] += 1
        return True

    def begin(self, prepared: bytes, parameters: Sequence[str], on_answer: OnAnswer) -> bool:
        with self.changed:
            if not self.connected or self._running is not None:
                return False
            self.arrived.append(parameters)
            self.threads.append(threading.get_ident())
            self._running = on_answer
            self.changed.notify_all()
            return True

    def wait(self, seconds: float) -> list[bytes]:
        with self.changed:
            self.waits, self.waiting = self.waits + 1, True
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self._woken or (self._running and not self.held), LONG)
            self.waiting = False
            self._woken = False
            lost = self.connected and not self.up
            self.connected = self.connected and self.up
            on_answer = None
            if lost or not self.held:
                on_answer, self._running = self._running, None
            if on_answer is not None and not lost:
                self.sent.append(self.arrived[-1])
            self.changed.notify_all()
        if on_answer is not None:
            on_answer(not lost)
        return []


def envelope(*positions: int) -> Envelope:
    links = [Link("t", ZERO, Point(each, 7), [], 0, 0, ZERO, 1) for each in positions]
    return Envelope("s", "0" * 32, "t", 1, [Message(link, 1, 1) for link in links], None, STORE)


def hello() -> Envelope:
    return Envelope("s", "0" * 32, "", 0, [], Hello({}, {}, ZERO, 0.0, ""), STORE)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def publisher(line: Line) -> Iterator[NotifyingPublisher]:
    made = NotifyingPublisher(line, Limits())  # type: ignore[arg-type]
    yield made
    line.change(held=False)
    made.close()


def start(publisher: NotifyingPublisher, connected: Any = lambda: None) -> None:
    publisher.initialize(lambda request: None, connected)


def test_publisher_announces_the_last_position_of_an_envelope(line: Line, publisher: NotifyingPublisher) -> None:
    start(publisher)
    publisher.send_event(envelope(3, 4))
    line.until(lambda: line.sent == [(CHANNEL, "4 7")])
    assert publisher.counters()["sent"] == 1


def test_the_thread_that_commits_sends_the_notification(line: Line, publisher: NotifyingPublisher) -> None:
    connected = threading.Event()
    start(publisher, connected.set)
    assert connected.wait(LONG)
    publisher.send_event(envelope(1))
    assert line.arrived == [(CHANNEL, "1 7")]
    assert line.threads == [threading.get_ident()]
    line.until(lambda: line.sent)
    publisher.close()
    assert publisher.counters()["notifications"] == 1


def test_publisher_sends_one_notification_for_positions_that_wait(line: Line, publisher: NotifyingPublisher) -> None:
    start(publisher)
    line.change(held=True)
    publisher.send_event(envelope(1))
    line.until(lambda: line.arrived)
    for position in range(2, 500):
        publisher.send_event(envelope(position))
    line.change(held=False)
    line.until(lambda: len(line.sent) == 2)
    publisher.close()
    assert line.sent == [(CHANNEL, "1 7"), (CHANNEL, "499 7")]
    assert {"sent": 499, "notifications": 2}.items() <= publisher.counters().items()


def test_publisher_announces_the_newest_of_positions_that_come_in_another_order(
    line: Line, publisher: NotifyingPublisher
) -> None:
    line.change(up=False)
    start(publisher)
    for position in (9, 11, 10):
        publisher.send_event(envelope(position))
    line.change(up=True)
    line.until(lambda: line.sent)
    publisher.close()
    assert line.sent == [(CHANNEL, "11 7")]
    assert {"sent": 3, "notifications": 1}.items() <= publisher.counters().items()


def test_publisher_announces_an_earlier_position_of_another_store(line: Line, publisher: NotifyingPublisher) -> None:
    line.change(up=False)
    start(publisher)
    publisher.send_event(envelope(11))
    other = bytes(16)
    publisher.send_event(msgspec.structs.replace(envelope(2), store_id=other))
    line.change(up=True)
    line.until(lambda: line.sent)
    assert line.sent == [(f"pubsub_{other.hex()}", "2 7")]


def test_publisher_does_not_wait_for_the_database(line: Line, publisher: NotifyingPublisher) -> None:
    start(publisher)
    line.change(held=True)
    for position in range(1, 100):
        publisher.send_event(envelope(position))  # would never return
    line.until(lambda: line.arrived)
    assert line.sent == []
    assert publisher.sending_for(time.monotonic() + 50.0) >= 50.0
    assert publisher.max_sending == 10.0, "a busy database is no hanging thread"
    line.change(held=False)
    line.until(lambda: line.sent)


def test_publisher_is_not_sending_while_it_waits(line: Line, publisher: NotifyingPublisher) -> None:
    assert publisher.sending_for(time.monotonic() + 50.0) == 0.0


def test_publisher_announces_after_the_connection_was_made_again(line: Line, publisher: NotifyingPublisher) -> None:
    connections = threading.Semaphore(0)
    start(publisher, connections.release)
    assert connections.acquire(timeout=LONG)
    line.change(up=False)
    for position in (1, 2, 3):
        publisher.send_event(envelope(position))
    line.until(lambda: not line.connected)
    assert line.sent == []
    line.change(up=True)
    assert connections.acquire(timeout=LONG)
    line.until(lambda: line.sent == [(CHANNEL, "3 7")])


def test_publisher_announces_again_what_was_not_executed(line: Line, publisher: NotifyingPublisher) -> None:
    start(publisher)
    line.change(held=True)
    publisher.send_event(envelope(1))
    line.until(lambda: line.arrived)
    line.change(held=False, up=False)
    line.until(lambda: not line.connected)
    line.change(up=True)
    line.until(lambda: line.sent == [(CHANNEL, "1 7")])
    publisher.close()
    assert len(line.arrived) == 2
    assert publisher.counters()["notifications"] == 1
    assert publisher.sending_for(time.monotonic() + 50.0) == 0.0


def test_publisher_keeps_a_newer_position_when_a_notification_fails(line: Line, publisher: NotifyingPublisher) -> None:
    start(publisher)
    line.change(held=True)
    publisher.send_event(envelope(1))
    line.until(lambda: line.arrived)
    publisher.send_event(envelope(2))
    line.change(held=False, up=False)
    line.until(lambda: not line.connected)
    line.change(up=True)
    line.until(lambda: line.sent == [(CHANNEL, "2 7")])


def test_publisher_sends_no_hellos(line: Line, publisher: NotifyingPublisher) -> None:
    start(publisher)
    publisher.send_event(hello())
    publisher.send_event(envelope(1))
    line.until(lambda: line.sent == [(CHANNEL, "1 7")])
    publisher.close()
    assert len(line.arrived) == 1
    assert {"sent": 1, "unneeded": 1}.items() <= publisher.counters().items()


def test_closed_publisher_has_announced_the_last_position(line: Line, publisher: NotifyingPublisher) -> None:
    line.change(up=False)
    start(publisher)
    publisher.send_event(envelope(9))
    line.up = True  # the next try is made by close(), as of a program that commits once and ends
    publisher.close()
    assert line.sent == [(CHANNEL, "9 7")]
    assert line.closed


def test_closed_publisher_announces_what_waited_for_the_answer_to_another(
    line: Line, publisher: NotifyingPublisher
) -> None:
    start(publisher)
    line.change(held=True)
    publisher.send_event(envelope(1))
    line.until(lambda: line.arrived)
    publisher.send_event(envelope(2))
    line.until(lambda: line.waiting and not line._woken)
    before = line.waits
    closing = threading.Thread(target=publisher.close)
    closing.start()
    line.until(lambda: line.waits == before + 1)  # woken by close(), it waits again
    line.change(held=False)
    closing.join(LONG)
    assert line.sent == [(CHANNEL, "1 7"), (CHANNEL, "2 7")]
    assert line.closed


def test_closed_publisher_ends_without_a_database(line: Line, publisher: NotifyingPublisher) -> None:
    line.change(up=False)
    start(publisher)
    publisher.send_event(envelope(9))
    publisher.close()
    assert line.closed
    with pytest.raises(TransportError, match="closed"):
        publisher.send_event(envelope(10))


@pytest.mark.parametrize("error", [ValueError("a service's error"), SystemExit(3)])
def test_callback_error_is_counted_and_does_not_end_the_thread(
    line: Line, publisher: NotifyingPublisher, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    start(publisher, fail)
    publisher.send_event(envelope(1))
    line.until(lambda: line.sent)
    assert publisher.counters()["callback_errors"] == 1


def test_publisher_that_was_not_initialized_is_refused_and_closes(line: Line, publisher: NotifyingPublisher) -> None:
    with pytest.raises(TransportError, match="not initialized"):
        publisher.send_event(envelope(1))
    publisher.close()
