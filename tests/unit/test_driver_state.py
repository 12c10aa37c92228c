"""The shared state of drivers' publishers and subscribers. The conformance suite checks that drivers use it."""

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
        self.state = SubscriberState(self.lock, LOG, ("more",))
        self.running = threading.Event()
        self.woken = threading.Event()
        self.body: Callable[[], None] = lambda: None

    def prepare(self) -> Callable[[], None]:
        assert self.lock.locked(), "a concurrent close() must wait"
        return self.run

    def run(self) -> None:
        self.running.set()
        self.body()
        self.woken.wait(10)

    def start(self) -> None:
        self.state.start("pubsub-test", self.prepare)
        assert self.running.wait(10)

    def close(self, maximum: float = 10.0) -> None:
        self.state.close(self.woken.set, maximum)


def refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(TransportError, match=why):
        call()


def test_a_publisher_is_open_between_initialize_and_close() -> None:
    state = PublisherState()
    refused(state.check_open, "not initialized; call initialize")
    state.check_new()
    state.begin()
    state.check_open()
    refused(state.check_new, "was initialized before; make a new one")
    state.closed = True
    refused(state.check_open, "is closed; make a new one")


def test_a_publisher_that_was_closed_is_not_initialized_any_more() -> None:
    state = PublisherState()
    state.closed = True
    refused(state.check_new, "this publisher is closed; make a new one")


def test_a_publisher_belongs_to_the_process_that_initialized_it() -> None:
    made, used = PublisherState(), PublisherState()
    used.begin()

    def child() -> None:
        assert not made.inherited, "initialized after the fork: it belongs to the child"
        made.begin()
        made.check_open()
        assert used.inherited
        refused(used.check_open, "in another process; make one after the fork")

    in_a_fork(child, 10)
    assert not used.inherited


def nothing() -> None:
    """A callback for connections that does nothing."""


def test_an_exception_of_the_connection_callback_is_counted_and_caught() -> None:
    receiving = Receiving()
    met: list[int] = []

    def failing() -> None:
        met.append(1)
        raise SystemExit("a controller's fault")

    receiving.state.connected()  # without a callback yet
    receiving.state.initialize(lambda envelope: None, failing)
    receiving.state.connected()
    receiving.state.connected()
    assert (len(met), receiving.state.counts["callback_errors"]) == (2, 2)


def test_a_subscriber_is_initialized_and_started_once_and_in_this_order() -> None:
    receiving = Receiving()
    refused(receiving.start, "not initialized; call initialize")
    receiving.state.initialize(lambda envelope: None, nothing)
    refused(lambda: receiving.state.initialize(lambda envelope: None, nothing), "was initialized before")
    receiving.start()
    try:
        refused(receiving.start, "runs already")
    finally:
        receiving.close()
    again = partial(receiving.state.initialize, lambda envelope: None, nothing)
    for late in (receiving.state.check_open, receiving.start, again):
        refused(late, "is closed; make a new one")
    receiving.state.check_process()


def test_an_exception_of_prepare_changes_nothing() -> None:
    receiving = Receiving()
    receiving.state.initialize(lambda envelope: None, nothing)

    def busy() -> Callable[[], None]:
        raise TransportError("the address is in use; choose another")

    refused(lambda: receiving.state.start("pubsub-test", busy), "in use")
    receiving.start()
    receiving.close()


def test_prepare_is_not_called_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Receiving()
    made.state.initialize(lambda _: None, nothing)
    opened: list[str] = []

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def prepare() -> Callable[[], None]:
        opened.append("something")
        return made.run

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        refused(lambda: made.state.start("pubsub-test", prepare), "cannot start the thread 'pubsub-test': can't start")
    assert opened == []
    made.start()  # a retry is allowed
    made.close()


def test_close_wakes_the_thread_under_the_lock_and_waits_for_its_end() -> None:
    receiving = Receiving()
    receiving.state.initialize(lambda envelope: None, nothing)
    receiving.start()
    held = []

    def wake() -> None:
        held.append(receiving.lock.locked())
        receiving.woken.set()

    receiving.state.close(wake, 10)
    assert held == [True]
    assert "pubsub-test" not in {thread.name for thread in threading.enumerate()}
    receiving.close()


def test_close_on_the_receiving_thread_does_not_wait_for_itself() -> None:
    receiving = Receiving()
    receiving.state.initialize(lambda envelope: None, nothing)
    ended = threading.Event()

    def body() -> None:
        receiving.close()  # joining itself would raise
        ended.set()

    receiving.body = body
    receiving.start()
    assert ended.wait(10)
    receiving.close()


def test_close_does_not_wait_longer_than_max_wait() -> None:
    receiving = Receiving()
    receiving.state.initialize(lambda envelope: None, nothing)
    receiving.start()
    receiving.state.close(lambda: None, 0.01)  # does not wake the thread
    assert receiving.state.closed
    receiving.close()


def test_a_subscriber_belongs_to_the_process_that_made_it() -> None:
    receiving = Receiving()
    receiving.state.initialize(lambda envelope: None, nothing)

    def child() -> None:
        assert receiving.state.inherited
        for use in (receiving.state.check_process, receiving.state.check_open, receiving.start):
            refused(use, "make one after the fork")
        with receiving.lock:  # a thread of the parent may have held it at the fork
            receiving.close()
        assert not receiving.state.closed

    in_a_fork(child, 10)
    receiving.start()
    receiving.close()


@pytest.mark.parametrize("error", [ValueError("a controller's fault"), SystemExit(3)])
def test_an_exception_of_the_callback_is_counted_and_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    receiving, received = Receiving(), []

    def failing(envelope: Envelope) -> None:
        received.append(envelope)
        raise error

    receiving.state.initialize(failing, nothing)
    receiving.state.deliver(ENVELOPE)
    assert received == [ENVELOPE]
    assert receiving.state.counts["callback_errors"] == 1
    assert "the callback failed for an envelope of api-1 on topic 't'" in caplog.text


def test_counters_start_at_0_and_drops_are_counted_by_reason() -> None:
    receiving = Receiving()
    assert receiving.state.counts == dict.fromkeys((*COUNTED, "more"), 0)
    receiving.state.drop(FrameError("cut off", "truncated"))
    assert receiving.state.counts == {**dict.fromkeys((*COUNTED, "more"), 0), "truncated": 1}


def test_check_topic_accepts_a_name_or_all() -> None:
    assert [check_topic("tenant-1"), check_topic(ALL)] == ["tenant-1", ALL]
    with pytest.raises(InvalidValueError, match="topic"):
        check_topic("a\0b")
