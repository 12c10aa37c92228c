"""The notice that the history changed, and its way through a handler's queue as a barrier."""

from pubsub_lib.core.dispatch import HandlerPolicy, HandlerQueue
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import HistoryChange, is_barrier, of_event
from pubsub_lib.core.model import ALL, Point

CHANGE = HistoryChange({"a": (Point(9, 1), Point(4, 2))})


def event(key: str, version: int, value: bytes = b"1") -> Event:
    return Event("port", key, "a", "set", version, version, b"0", value, version)


def drain(queue: HandlerQueue, now: float = 0.0) -> list[tuple[str, int | None]]:
    out = []
    while (got := queue.next(now)) is not None:
        out.append(("notice", 0) if is_barrier(got) else (got.key, got.version))
        queue.done(now)
    return out


def test_a_notice_is_the_same_behind_the_queue() -> None:
    barrier = CHANGE.as_event(3)
    assert is_barrier(barrier)
    assert not is_barrier(event("x", 1))
    assert of_event(barrier) == CHANGE


def test_a_notice_concerns_its_topics_or_everything() -> None:
    assert CHANGE.concerns("a")
    assert CHANGE.concerns(None)
    assert not CHANGE.concerns("b")
    assert HistoryChange({ALL: (Point(9, 1), Point(4, 2))}).concerns("b")


def test_a_notice_comes_between_what_was_pushed_before_and_after_it() -> None:
    queue = HandlerQueue(HandlerPolicy())
    queue.push(event("x", 9))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    assert drain(queue) == [("x", 9), ("notice", 0), ("x", 4)]


def test_over_the_limit_nothing_is_merged_into_what_waits_before_a_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(event("x", 9))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    queue.push(event("x", 5))
    assert drain(queue) == [("x", 9), ("notice", 0), ("x", 5)]


def test_a_retry_that_took_up_what_follows_a_notice_comes_after_it() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(event("x", 9))
    assert queue.next(0.0) is not None
    queue.push(event("y", 8))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    queue.failed(0.0, ValueError("no"))
    assert drain(queue, 2.0) == [("y", 8), ("notice", 0), ("x", 4)]


def test_a_notice_that_fails_is_tried_again_and_holds_nothing_up() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    assert queue.next(0.0) is not None
    queue.failed(0.0, ValueError("no"))
    assert drain(queue) == [("x", 4)]
    assert drain(queue, 1.0) == [("notice", 0)]


def test_two_notices_are_two() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(CHANGE.as_event(1))
    queue.push(CHANGE.as_event(2))
    assert drain(queue) == [("notice", 0), ("notice", 0)]


def test_a_queue_that_was_cleared_waits_for_no_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(CHANGE.as_event(1))
    queue.clear()
    queue.push(event("x", 4))
    queue.next(0.0)
    queue.failed(0.0, ValueError("no"))
    assert drain(queue, 1.0) == [("x", 4)]
