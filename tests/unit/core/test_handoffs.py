"""A worker that hands over what was never committed is not used for some time."""

import msgspec
import pytest

from pubsub_lib.core import handoffs as module
from pubsub_lib.core.handoffs import (
    AFTER,
    MAX_ASKED,
    MAX_EXCLUDED,
    MAX_KEPT,
    SECONDS,
    Contradicted,
    Handoffs,
    LinkName,
    contents_of,
)
from pubsub_lib.core.model import Link, Point
from tests.unit.core.builders import History

WORKER = ("api-1", "a" * 32)
OTHER = ("api-1", "b" * 32)


def asked(handoffs: Handoffs, begin: float) -> list[LinkName]:
    """The links that become overdue in the next two intervals."""
    return [*handoffs.overdue(begin), *handoffs.overdue(begin + AFTER)]


def given(handoffs: Handoffs, links: list[Link], worker: tuple[str, str] = WORKER) -> list[LinkName]:
    handoffs.add(links, worker)
    return [(link.topic, link.point) for link in links]


def committed(number: int, origin: str = "api-1") -> list[Link]:
    return [msgspec.structs.replace(link, origin=origin) for link in History().some(number)]


def test_link_that_the_store_does_not_contain_excludes_its_worker() -> None:
    handoffs = Handoffs("api-1")
    points = given(handoffs, History().some(2))
    assert handoffs.overdue(0.0) == [], "it may only not be visible yet"
    assert handoffs.overdue(AFTER - 0.1) == []
    assert handoffs.overdue(AFTER) == points
    assert handoffs.judge(points, [True, False], AFTER) == [Contradicted(*WORKER, *points[1])]
    assert (handoffs.contradicted, handoffs.excluded) == (1, [WORKER])
    assert handoffs.excludes(WORKER[1])
    assert not handoffs.excludes(OTHER[1])
    assert handoffs.overdue(2 * AFTER) == [], "each transaction is judged once"


def test_links_that_the_changelog_shows_are_not_looked_up() -> None:
    handoffs = Handoffs("api-1")
    links = History().some(4)
    given(handoffs, links)
    assert handoffs.confirm(links[:2]) == []
    handoffs.overdue(0.0)
    assert handoffs.confirm(links[2:3]) == []
    handoffs.overdue(AFTER)
    assert handoffs.confirm(links[3:]) == [], "it is being looked up"
    assert handoffs.overdue(2 * AFTER) == []
    assert handoffs.contradicted == 0


def test_trimmed_links_accuse_no_worker() -> None:
    handoffs = Handoffs("api-1")
    points = given(handoffs, History().some(1))
    assert asked(handoffs, 0.0) == points
    assert handoffs.judge(points, [None], AFTER) == []
    assert handoffs.contradicted == 0


def test_changed_history_accuses_no_worker() -> None:
    handoffs = Handoffs("api-1")
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
    handoffs = Handoffs("api-1")
    points = given(handoffs, History().some(1))
    assert asked(handoffs, 0.0) == points  # the store does not answer
    assert handoffs.overdue(2 * AFTER) == points
    assert handoffs.judge(points, [False], 2 * AFTER)


def test_first_worker_that_handed_a_link_over_is_accused() -> None:
    handoffs = Handoffs("api-1")
    links = History().some(1)
    given(handoffs, links)
    handoffs.overdue(0.0)
    points = given(handoffs, links, OTHER)
    assert handoffs.overdue(AFTER) == points
    assert [each.uuid for each in handoffs.judge(points, [False], AFTER)] == [WORKER[1]]
    assert handoffs.overdue(2 * AFTER) == []


def test_exclusion_ends_and_can_begin_again() -> None:
    handoffs = Handoffs("api-1")
    for begin in (0.0, 2 * SECONDS):
        points = given(handoffs, History().some(2))
        assert asked(handoffs, begin) == points
        assert len(handoffs.judge(points, [False, False], begin + AFTER)) == 1, "it is named once"
        handoffs.overdue(begin + AFTER + SECONDS - 0.1)
        assert handoffs.excludes(WORKER[1])
        handoffs.overdue(begin + 2 * AFTER + SECONDS)
        assert not handoffs.excludes(WORKER[1])


def test_memory_is_bounded() -> None:
    handoffs = Handoffs("api-1")
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


def test_after_a_lie_workers_are_doubted_until_the_changelog_shows_their_links() -> None:
    handoffs = Handoffs("api-1")
    links = committed(3)
    given(handoffs, links[:1])
    handoffs.confirm(links[:1])
    new = "c" * 32
    assert not handoffs.doubts(new), "no worker has lied"
    lie = given(handoffs, History(7).some(1), OTHER)
    assert asked(handoffs, 0.0) == lie
    handoffs.judge(lie, [False], AFTER)
    assert handoffs.doubts(new)
    assert not handoffs.doubts(WORKER[1]), "it was confirmed before"
    given(handoffs, links[1:], ("api-1", new))
    handoffs.confirm(links[1:2])
    assert not handoffs.doubts(new)
    handoffs.overdue(AFTER + SECONDS - 0.1)
    assert handoffs.doubts("d" * 32)
    handoffs.overdue(2 * AFTER + SECONDS)
    assert not handoffs.doubts("d" * 32), "no worker has lied for some time"


def test_doubt_lasts_while_workers_lie() -> None:
    handoffs = Handoffs("api-1")
    for number in range(4):
        now = number * SECONDS * 0.9
        lie = given(handoffs, History(number).some(1), ("api-1", f"{number:032x}"))
        assert asked(handoffs, now) == lie
        assert number == 0 or handoffs.doubts("d" * 32)
        handoffs.judge(lie, [False], now + AFTER)


def test_worker_is_confirmed_only_by_new_links_of_the_own_origin() -> None:
    """Those of another service can be received from its publisher by any program."""
    handoffs = Handoffs("api-1")
    foreign, orphans = committed(1, "api-2"), committed(1, "")
    for links in (foreign, orphans):
        given(handoffs, links, OTHER)
        handoffs.confirm(links)
    lie = given(handoffs, History(7).some(1))
    handoffs.judge(asked(handoffs, 0.0), [False] * len(lie), AFTER)
    assert handoffs.doubts(OTHER[1])
    old = committed(1)
    looked_up = given(handoffs, old, OTHER)
    assert [*handoffs.overdue(3 * AFTER), *handoffs.overdue(4 * AFTER)] == looked_up
    handoffs.judge(looked_up, [True], 4 * AFTER)
    assert handoffs.doubts(OTHER[1]), "an old link, which the reader of the changelog has passed"


def test_confirmed_worker_that_lies_is_doubted_after_its_exclusion() -> None:
    handoffs = Handoffs("api-1")
    links = committed(1)
    given(handoffs, links)
    handoffs.confirm(links)
    for begin, worker in ((0.0, WORKER), (SECONDS - AFTER, OTHER)):
        lie = given(handoffs, History(int(begin) + 7).some(1), worker)
        assert asked(handoffs, begin) == lie
        handoffs.judge(lie, [False], begin + AFTER)
    handoffs.overdue(SECONDS + AFTER)
    assert not handoffs.excludes(WORKER[1])
    assert handoffs.doubts(WORKER[1])


@pytest.mark.parametrize("interval", [0, 1, 2])
@pytest.mark.parametrize("field", ["changes", "digest", "count", "prev", "tx_prev", "tx_links", "origin"])
def test_altered_link_excludes_its_worker_when_the_changelog_shows_the_true_one(field: str, interval: int) -> None:
    handoffs = Handoffs("api-1")
    (link,) = committed(1)
    others = {"changes": [msgspec.structs.replace(link.changes[0], value=b"2")], "prev": Point(9, 9),
              "tx_prev": Point(9, 9), "origin": "api-2"}  # fmt: skip
    given(handoffs, [msgspec.structs.replace(link, **{field: others.get(field, 7)})])
    for number in range(interval):
        handoffs.overdue(number * AFTER)
    assert handoffs.confirm([link]) == [Contradicted(*WORKER, link.topic, link.point, altered=True)]
    assert handoffs.excludes(WORKER[1])
    assert handoffs.doubts(OTHER[1])


def test_contents_are_those_that_the_changelog_stores() -> None:
    (link,) = committed(1)
    assert contents_of(msgspec.structs.replace(link, trace="00-1-2-01", written_at=7.0)) == contents_of(link)


def test_number_of_confirmed_workers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONFIRMED", 2)
    handoffs = Handoffs("api-1")
    links = committed(4)
    for number, link in zip((1, 2, 1, 3), links, strict=True):
        given(handoffs, [link], ("api-1", f"{number:032x}"))
        handoffs.confirm([link])
    assert [*handoffs._confirmed] == [f"{1:032x}", f"{3:032x}"]
