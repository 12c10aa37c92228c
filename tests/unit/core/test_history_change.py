"""The notice of a changed history, as a barrier in a handler's queue."""

from pubsub_lib.core.events import Event
from pubsub_lib.core.handler_queue import HandlerPolicy, HandlerQueue, Parked
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


def fail(queue: HandlerQueue, now: float) -> Parked | None:
    assert queue.next(now) is not None
    return queue.failed(now, ValueError("no"))


def test_notice_is_unchanged_after_the_queue() -> None:
    barrier = CHANGE.as_event(3)
    assert is_barrier(barrier)
    assert not is_barrier(event("x", 1))
    assert of_event(barrier) == CHANGE


def test_notice_concerns_its_topics_or_everything() -> None:
    assert CHANGE.concerns("a")
    assert CHANGE.concerns(None)
    assert not CHANGE.concerns("b")
    assert HistoryChange({ALL: (Point(9, 1), Point(4, 2))}).concerns("b")


def test_notice_comes_between_earlier_and_later_events() -> None:
    queue = HandlerQueue(HandlerPolicy())
    queue.push(event("x", 9))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    assert drain(queue) == [("x", 9), ("notice", 0), ("x", 4)]


def test_over_the_limit_no_event_is_merged_across_a_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(event("x", 9))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    queue.push(event("x", 5))
    assert drain(queue) == [("x", 9), ("notice", 0), ("x", 5)]


def test_retry_merged_with_later_events_comes_after_the_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(event("x", 9))
    assert queue.next(0.0) is not None
    queue.push(event("y", 8))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    queue.failed(0.0, ValueError("no"))
    assert drain(queue, 2.0) == [("y", 8), ("notice", 0), ("x", 4)]


def test_delete_that_is_tried_again_after_the_notice_has_no_version() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(Event("port", "x", "a", "delete", 9, 3, b"0", None, 9))  # undone, and absent in the new history too
    fail(queue, 0.0)
    queue.push(CHANGE.as_event(1))
    assert drain(queue, 1.0) == [("notice", 0), ("x", None)]
    queue.push(event("x", 9))  # the new history reaches the same version
    assert drain(queue, 1.0) == [("x", 9)]


def test_delete_of_the_new_history_keeps_its_version() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(Event("port", "x", "a", "delete", 9, 3, b"0", None, 9))
    fail(queue, 0.0)
    queue.push(CHANGE.as_event(1))
    queue.push(Event("port", "x", "a", "delete", 5, 3, b"0", None, 5))  # merged into the one that waits
    assert drain(queue, 1.0) == [("notice", 0), ("x", 5)]
    queue.push(Event("port", "y", "a", "delete", 6, 3, b"0", None, 6))
    fail(queue, 1.0)
    assert drain(queue, 2.0) == [("y", 6)]


def test_no_event_overtakes_a_failed_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(event("y", 7))
    queue.push(CHANGE.as_event(1))
    queue.push(event("x", 4))
    fail(queue, 0.0)  # y: its retry is due at 1.0, ...
    fail(queue, 0.5)  # ... and the notice's at 1.5
    queue.push(event("z", 5))
    assert drain(queue, 1.4) == []
    assert queue.next_time() == 1.5
    assert drain(queue, 1.5) == [("notice", 0), ("y", 7), ("x", 4), ("z", 5)]


def test_parked_notice_releases_later_events() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0, tries=2))
    queue.push(CHANGE.as_event(1))
    queue.push(CHANGE.as_event(2))
    queue.push(event("x", 4))
    fail(queue, 0.0)
    mark = queue.mark()
    assert drain(queue, 0.9) == []
    assert len(queue) == 3
    parked = fail(queue, 1.0)
    assert parked is not None
    assert parked.event == CHANGE.as_event(1)
    fail(queue, 1.0)  # the second notice holds back later events too
    assert drain(queue, 1.9) == []
    assert not queue.passed(mark)
    assert queue.parked() == [parked]
    assert drain(queue, 2.0) == [("notice", 0), ("x", 4)]
    assert queue.passed(mark)
    assert queue.parked() == []


def test_only_the_newest_parked_notice_is_kept() -> None:
    queue = HandlerQueue(HandlerPolicy(tries=1))
    for each in (CHANGE.as_event(1), event("x", 4), CHANGE.as_event(2)):
        queue.push(each)
        parked = fail(queue, 0.0)
        assert queue.parked()[-1] == parked
    assert [each.event.key for each in queue.parked()] == ["x", "history change 2"]


def test_no_event_is_merged_across_a_retried_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1, backoff=1.0))
    queue.push(CHANGE.as_event(1))
    fail(queue, 0.0)
    for version in (4, 5, 6):
        queue.push(event("x", version))
    assert drain(queue, 1.0) == [("notice", 0), ("x", 6)]


def test_clear_during_a_retry_of_a_notice_releases_the_queue() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(CHANGE.as_event(1))
    fail(queue, 0.0)
    queue.clear()
    queue.push(event("x", 4))
    assert drain(queue) == [("x", 4)]


def test_two_notices_are_not_merged() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(CHANGE.as_event(1))
    queue.push(CHANGE.as_event(2))
    assert drain(queue) == [("notice", 0), ("notice", 0)]


def test_cleared_queue_waits_for_no_notice() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(CHANGE.as_event(1))
    queue.clear()
    queue.push(event("x", 4))
    queue.next(0.0)
    queue.failed(0.0, ValueError("no"))
    assert drain(queue, 1.0) == [("x", 4)]
