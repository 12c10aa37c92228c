"""The part of a driver's life that is the library's. That drivers use it rightly, the conformance suite proves."""

import logging
import threading
from collections.abc import Callable
from functools import partial

import pytest

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import COUNTED, PublisherState, SubscriberState, check_topic
from pubsub_lib.errors import FrameError, InvalidValueError, TransportError
from pubsub_lib.testing.checks import in_a_fork

LOG = logging.getLogger("pubsub_lib.tests.lifecycle")
ENVELOPE = Envelope("api-1", "0" * 32, "t", 1, [])


class Receiving:
    """A receiving thread that runs until it is woken."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.life = SubscriberState(self.lock, LOG, ("more",))
        self.running = threading.Event()
        self.woken = threading.Event()
        self.body: Callable[[], None] = lambda: None

    def prepare(self) -> Callable[[], None]:
        assert self.lock.locked(), "a close() must not come between"
        return self.run

    def run(self) -> None:
        self.running.set()
        self.body()
        self.woken.wait(10)

    def start(self) -> None:
        self.life.start("pubsub-test", self.prepare)
        assert self.running.wait(10)

    def close(self, maximum: float = 10.0) -> None:
        self.life.close(self.woken.set, maximum)


def refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(TransportError, match=why):
        call()


def test_a_publisher_is_used_between_initialize_and_close() -> None:
    life = PublisherState()
    refused(life.check_open, "not initialized; call initialize")
    life.check_new()
    life.begin()
    life.check_open()
    refused(life.check_new, "was initialized before; make a new one")
    life.closed = True
    refused(life.check_open, "is closed; make a new one")


def test_a_publisher_that_was_closed_is_not_initialized_any_more() -> None:
    life = PublisherState()
    life.closed = True
    refused(life.check_new, "make a new one")


def test_a_publisher_belongs_to_the_process_that_initialized_it() -> None:
    made, used = PublisherState(), PublisherState()
    used.begin()

    def child() -> None:
        assert not made.inherited, "made before the fork, initialized after it: the child's own"
        made.begin()
        made.check_open()
        assert used.inherited
        refused(used.check_open, "in another process; make one after the fork")

    in_a_fork(child, 10)
    assert not used.inherited


def nothing() -> None:
    """Nobody wants to know of connections."""


def test_what_the_callback_of_a_connection_raises_is_counted_and_ends_nothing() -> None:
    receiving = Receiving()
    met: list[int] = []

    def failing() -> None:
        met.append(1)
        raise SystemExit("a controller's fault")

    receiving.life.connected()  # nobody wants to know yet
    receiving.life.initialize(lambda envelope: None, failing)
    receiving.life.connected()
    receiving.life.connected()
    assert (len(met), receiving.life.counts["callback_errors"]) == (2, 2)


def test_a_subscriber_is_initialized_and_started_once_and_in_this_order() -> None:
    receiving = Receiving()
    refused(receiving.start, "not initialized; call initialize")
    receiving.life.initialize(lambda envelope: None, nothing)
    refused(lambda: receiving.life.initialize(lambda envelope: None, nothing), "was initialized before")
    receiving.start()
    try:
        refused(receiving.start, "runs already")
    finally:
        receiving.close()
    again = partial(receiving.life.initialize, lambda envelope: None, nothing)
    for late in (receiving.life.check_open, receiving.start, again):
        refused(late, "is closed; make a new one")
    receiving.life.check_process()


def test_what_prepare_raises_leaves_all_as_it_was() -> None:
    receiving = Receiving()
    receiving.life.initialize(lambda envelope: None, nothing)

    def busy() -> Callable[[], None]:
        raise TransportError("the address is in use; choose another")

    refused(lambda: receiving.life.start("pubsub-test", busy), "in use")
    receiving.start()
    receiving.close()


def test_nothing_is_opened_when_there_is_no_thread_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Receiving()
    made.life.initialize(lambda _: None, nothing)
    opened: list[str] = []

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def prepare() -> Callable[[], None]:
        opened.append("something")
        return made.run

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        refused(lambda: made.life.start("pubsub-test", prepare), "cannot start the thread 'pubsub-test': can't start")
    assert opened == []
    made.start()  # it may be tried again
    made.close()


def test_close_wakes_the_thread_under_the_lock_and_waits_for_its_end() -> None:
    receiving = Receiving()
    receiving.life.initialize(lambda envelope: None, nothing)
    receiving.start()
    held = []

    def wake() -> None:
        held.append(receiving.lock.locked())
        receiving.woken.set()

    receiving.life.close(wake, 10)
    assert held == [True]
    assert "pubsub-test" not in {thread.name for thread in threading.enumerate()}
    receiving.close()


def test_close_on_the_receiving_thread_does_not_wait_for_itself() -> None:
    receiving = Receiving()
    receiving.life.initialize(lambda envelope: None, nothing)
    ended = threading.Event()

    def body() -> None:
        receiving.close()  # joining itself would raise
        ended.set()

    receiving.body = body
    receiving.start()
    assert ended.wait(10)
    receiving.close()


def test_close_does_not_wait_longer_than_it_is_told() -> None:
    receiving = Receiving()
    receiving.life.initialize(lambda envelope: None, nothing)
    receiving.start()
    receiving.life.close(lambda: None, 0.01)  # nobody wakes it
    assert receiving.life.closed
    receiving.close()


def test_a_subscriber_belongs_to_the_process_that_made_it() -> None:
    receiving = Receiving()
    receiving.life.initialize(lambda envelope: None, nothing)

    def child() -> None:
        assert receiving.life.inherited
        for use in (receiving.life.check_process, receiving.life.check_open, receiving.start):
            refused(use, "make one after the fork")
        with receiving.lock:  # as a thread of the parent may have held it at the fork
            receiving.close()
        assert not receiving.life.closed

    in_a_fork(child, 10)
    receiving.start()
    receiving.close()


@pytest.mark.parametrize("error", [ValueError("a controller's fault"), SystemExit(3)])
def test_what_the_callback_raises_is_counted_and_logged(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    receiving, came = Receiving(), []

    def failing(envelope: Envelope) -> None:
        came.append(envelope)
        raise error

    receiving.life.initialize(failing, nothing)
    receiving.life.deliver(ENVELOPE)
    assert came == [ENVELOPE]
    assert receiving.life.counts["callback_errors"] == 1
    assert "the callback failed for an envelope of api-1 on topic 't'" in caplog.text


def test_counters_begin_at_0_and_drops_are_counted_by_their_reason() -> None:
    receiving = Receiving()
    assert receiving.life.counts == dict.fromkeys((*COUNTED, "more"), 0)
    receiving.life.drop(FrameError("cut off", "truncated"))
    assert receiving.life.counts == {**dict.fromkeys((*COUNTED, "more"), 0), "truncated": 1}


def test_a_topic_is_a_name_or_everything() -> None:
    assert [check_topic("tenant-1"), check_topic(ALL)] == ["tenant-1", ALL]
    with pytest.raises(InvalidValueError, match="topic"):
        check_topic("a\0b")
