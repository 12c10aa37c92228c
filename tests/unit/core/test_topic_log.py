"""The last links of a topic in a relay: deltas from any point that it has."""

import pytest

from pubsub_lib.core.log_space import LogSpace
from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.topic_log import LINK_OVERHEAD, TopicLog
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


def space_for(*links: Link) -> LogSpace:
    """A space in which these links have room, and no further one."""
    return LogSpace(sum(LINK_OVERHEAD + size_of(link) for link in links))


def test_log_keeps_the_newest_links() -> None:
    links = History().some(5)
    log = TopicLog(ZERO, space_for(*links[:3]))
    for link in links:
        log.add(link, 1.0)
    assert len(log) == 3
    assert log.after(links[0].point) is None
    assert log.after(links[1].point) == (links[2:], 1.0)


def test_log_is_bounded_in_bytes() -> None:
    links = History().some(5)
    log = TopicLog(ZERO, LogSpace(2 * (LINK_OVERHEAD + size_of(links[0]))))
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


def test_older_links_are_put_before_the_log_that_they_lead_to() -> None:
    links = History().some(6)
    log = TopicLog(links[2].point)
    assert log.lacks(links[0].point)
    assert not log.lacks(Point(3, 99)), "another history's point"
    log.add(links[3], 5.0)
    assert log.prepend(links[1:5], 9.0)
    assert log.after(links[0].point) == (links[1:4], 9.0)
    assert log.after(links[2].point) == (links[3:4], 5.0)
    assert not log.lacks(links[0].point)


def test_rule_r3_older_links_that_do_not_show_the_head_are_no_newer_than_the_log() -> None:
    """A restore may have undone the log's own links before the older ones were read."""
    links = History().some(6)
    log = TopicLog(links[2].point)
    log.add(links[3], 5.0)
    log.add(links[4], 6.0)
    assert log.prepend(links[1:4], 9.0)
    assert log.after(links[0].point) == (links[1:5], 5.0)


def test_older_links_that_do_not_lead_to_the_log_or_have_no_room_are_not_used() -> None:
    history = History()
    links = history.some(6)
    restored = history.restored(2).some(3)
    log = TopicLog(links[3].point, space_for(*links[2:5]))
    log.add(links[4], 5.0)
    assert not log.prepend(links[:2], 9.0), "they end before it"
    assert not log.prepend([], 9.0)
    assert not log.prepend([links[1], links[3]], 9.0), "one is missing"
    assert not log.prepend(restored, 9.0), "another history"
    assert not log.prepend(links[1:4], 9.0), "three and one are too many"
    assert log.after(links[3].point) == ([links[4]], 5.0)
    assert log.prepend(links[2:4], 9.0)
    assert not log.lacks(links[0].point), "the log is full, so nothing is read for it"
    log.add(links[5], 6.0)
    assert log.after(links[1].point) is None
