"""The last links of a topic in a relay: deltas from any point that it has."""

import pytest

from pubsub_lib.core.model import ZERO, Point
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.topic_log import TopicLog
from tests.unit.core.builders import History


def test_log_gives_the_links_after_each_of_its_points() -> None:
    links = History().some(4)
    log = TopicLog(ZERO)
    for number, link in enumerate(links):
        log.add(link, float(number))
    assert log.after(ZERO) == (links, 0.0)
    assert log.after(links[1].point) == (links[2:], 2.0)
    assert log.after(links[3].point) == ([], float("inf"))
    assert log.after(Point(2, 99)) is None, "another history's point"


def test_log_keeps_the_newest_links() -> None:
    links = History().some(5)
    log = TopicLog(ZERO, max_links=3)
    for link in links:
        log.add(link, 1.0)
    assert len(log) == 3
    assert log.after(links[0].point) is None
    assert log.after(links[1].point) == (links[2:], 1.0)


def test_log_is_bounded_in_bytes() -> None:
    links = History().some(5)
    log = TopicLog(ZERO, max_bytes=2 * size_of(links[0]))
    for link in links:
        log.add(link, 1.0)
    assert len(log) == 2
    assert log.head == links[4].point


def test_log_begins_again_after_a_full_sync_and_after_a_gap() -> None:
    links = History().some(5)
    log = TopicLog(ZERO)
    log.add(links[0], 1.0)
    log.restart(links[2].point)
    assert (len(log), log.head) == (0, links[2].point)
    log.add(links[4], 2.0)
    assert log.after(links[3].point) == ([links[4]], 2.0)
    assert log.after(links[2].point) is None


@pytest.mark.parametrize(
    ("point", "held"),
    [
        (ZERO, True),
        (Point(2, 99), None),
        (Point(4, 99), False),
        (Point(5, 99), False),
        (Point(9, 99), False),
    ],
)
def test_log_shows_whether_the_history_contains_a_point(point: Point, held: bool | None) -> None:
    links = History().some(5)
    log = TopicLog(links[1].point)
    for link in links[2:]:
        log.add(link, 1.0)
    assert log.holds(point) is held
    assert all(log.holds(link.point) for link in links[1:])
