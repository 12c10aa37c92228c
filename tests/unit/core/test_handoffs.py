"""A worker that hands over what was never committed is not used for some time."""

from pubsub_lib.core.handoffs import AFTER, MAX_ASKED, MAX_EXCLUDED, MAX_KEPT, SECONDS, Contradicted, Handoffs
from pubsub_lib.core.model import Link, Point
from tests.unit.core.builders import History

WORKER = ("api-1", "a" * 32)
OTHER = ("api-1", "b" * 32)


def asked(handoffs: Handoffs, begin: float) -> list[Point]:
    """The points that become overdue in the next two intervals."""
    return [*handoffs.overdue(begin), *handoffs.overdue(begin + AFTER)]


def given(handoffs: Handoffs, links: list[Link], worker: tuple[str, str] = WORKER) -> list[Point]:
    handoffs.add(links, worker)
    return [link.point for link in links]


def test_link_that_the_store_does_not_contain_excludes_its_worker() -> None:
    handoffs = Handoffs()
    points = given(handoffs, History().some(2))
    assert handoffs.overdue(0.0) == [], "it may only not be visible yet"
    assert handoffs.overdue(AFTER - 0.1) == []
    assert handoffs.overdue(AFTER) == points
    assert handoffs.judge(points, [True, False], AFTER) == [Contradicted(*WORKER, "t", points[1])]
    assert (handoffs.contradicted, handoffs.excluded) == (1, [WORKER])
    assert handoffs.excludes(WORKER[1])
    assert not handoffs.excludes(OTHER[1])
    assert handoffs.overdue(2 * AFTER) == [], "each transaction is judged once"


def test_links_that_the_changelog_shows_are_not_looked_up() -> None:
    handoffs = Handoffs()
    points = given(handoffs, History().some(4))
    handoffs.confirm(points[:2])
    handoffs.overdue(0.0)
    handoffs.confirm(points[2:])
    assert handoffs.overdue(AFTER) == []


def test_trimmed_links_accuse_no_worker() -> None:
    handoffs = Handoffs()
    points = given(handoffs, History().some(1))
    assert asked(handoffs, 0.0) == points
    assert handoffs.judge(points, [None], AFTER) == []
    assert handoffs.contradicted == 0


def test_changed_history_accuses_no_worker() -> None:
    handoffs = Handoffs()
    links = History().some(3)
    given(handoffs, links[:1])
    handoffs.overdue(0.0)
    given(handoffs, links[1:2])
    points = handoffs.overdue(AFTER)
    given(handoffs, links[2:])
    handoffs.forget()
    assert handoffs.judge(points, [False], AFTER) == []
    assert asked(handoffs, 2 * AFTER) == []


def test_transactions_are_looked_up_again_after_a_failure() -> None:
    handoffs = Handoffs()
    points = given(handoffs, History().some(1))
    assert asked(handoffs, 0.0) == points  # the store does not answer
    assert handoffs.overdue(2 * AFTER) == points
    assert handoffs.judge(points, [False], 2 * AFTER)


def test_first_worker_that_handed_a_link_over_is_accused() -> None:
    handoffs = Handoffs()
    links = History().some(1)
    given(handoffs, links)
    handoffs.overdue(0.0)
    points = given(handoffs, links, OTHER)
    assert handoffs.overdue(AFTER) == points
    assert [each.uuid for each in handoffs.judge(points, [False], AFTER)] == [WORKER[1]]
    assert handoffs.overdue(2 * AFTER) == []


def test_exclusion_ends_and_can_begin_again() -> None:
    handoffs = Handoffs()
    for begin in (0.0, 2 * SECONDS):
        points = given(handoffs, History().some(2))
        assert asked(handoffs, begin) == points
        assert len(handoffs.judge(points, [False, False], begin + AFTER)) == 1, "it is named once"
        handoffs.overdue(begin + AFTER + SECONDS - 0.1)
        assert handoffs.excludes(WORKER[1])
        handoffs.overdue(begin + 2 * AFTER + SECONDS)
        assert not handoffs.excludes(WORKER[1])


def test_memory_is_bounded() -> None:
    handoffs = Handoffs()
    (link,) = History().some(1)
    for position in range(MAX_KEPT + 10):
        moved = Link("t", link.prev, Point(position, 7), link.changes, 1, 1, link.tx_prev, 1, "", 0.0)
        handoffs.add([moved], ("api-1", f"{position:032x}"))
    assert len(handoffs._young) == MAX_KEPT
    points = asked(handoffs, 0.0)
    assert len(points) == MAX_ASKED
    handoffs.judge(points, [False] * len(points), AFTER)
    handoffs.add([Link("t", link.prev, Point(1, 1), link.changes, 1, 1, link.tx_prev, 1, "", 0.0)], OTHER)
    points = [*handoffs.overdue(2 * AFTER), *handoffs.overdue(3 * AFTER)]
    handoffs.judge(points, [False] * len(points), 3 * AFTER)
    assert len(handoffs.excluded) == MAX_EXCLUDED
    assert handoffs.excludes(OTHER[1])
