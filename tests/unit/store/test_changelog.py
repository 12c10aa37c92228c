"""Deltas, history (rule S3), following and trimming, on each of the three database systems."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import create_engine, delete, event, insert, select, update

from pubsub_lib.config import options
from pubsub_lib.core.limits import MAX_LINKS
from pubsub_lib.core.model import ALL, ZERO, Delta, Full, Incomplete, Link, Point, Want
from pubsub_lib.core.timing import MAX_SECONDS
from pubsub_lib.errors import InvalidValueError, StoreError
from pubsub_lib.store import Store, changelog, schema
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import SETTINGS, Opener


def fill(store: Store, count: int, first: int = 0) -> list[Link]:
    """Write ``count`` transactions on two topics in turn; returns their links."""
    links: list[Link] = []
    for i in range(first, first + count):
        with store.transaction() as tx:
            tx.set("t", f"k{i % 5}", i, topic=f"topic-{i % 5 % 2}")
        assert tx.commit is not None
        links += tx.commit.links
    return links


def delta(store: Store, chain: str, after: Point) -> Delta | Incomplete | Full:
    """The answer; of a delta the links and the head, after a check of the heads of its topics."""
    answer = store.read_sync({chain: Want(after=after)}).chains[chain]
    if isinstance(answer, Delta):
        assert answer.heads == store.read_heads([chain]).topics
        return Delta(answer.links, answer.head)
    return answer


def backup(url: str) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        tables = schema.metadata.sorted_tables
        rows = {each.name: [dict(row) for row in connection.execute(select(each)).mappings()] for each in tables}
    engine.dispose()
    return rows


def restore(url: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in schema.metadata.sorted_tables:
            connection.execute(delete(table))
            if rows[table.name]:
                connection.execute(insert(table), list(rows[table.name]))
    engine.dispose()


def test_delta_contains_the_links_after_a_point(store: Store) -> None:
    links = fill(store, 10)
    mine = [link for link in links if link.topic == "topic-0"]
    for i, link in enumerate(mine):
        assert delta(store, "topic-0", link.point) == Delta(mine[i + 1 :], mine[-1].point)
    assert delta(store, "topic-0", ZERO) == Delta(mine, mine[-1].point)
    assert delta(store, "never", ZERO) == Delta([], ZERO)
    assert delta(store, "never", mine[0].point) == Incomplete()


def test_delta_of_a_topic_reads_no_links_when_none_can_follow(store: Store) -> None:
    """With many topics nearly all are at their head. Points of another history may be beyond it."""
    head = [link for link in fill(store, 4) if link.topic == "topic-0"][-1].point
    statements: list[str] = []
    event.listen(store._readers, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert delta(store, "topic-0", head) == Delta([], head)
    assert delta(store, "topic-0", Point(head.position, head.nonce + 1)) == Incomplete()
    assert delta(store, "topic-0", Point(head.position + 9, 1)) == Incomplete()
    assert [each for each in statements if "pubsub_links" in each] == []


def test_sync_of_several_topics_is_one_reading(store: Store) -> None:
    links = fill(store, 10)
    answer = store.read_sync({"topic-0": Want(after=ZERO), "topic-1": Want(), "never": Want()})
    assert answer.store == links[-1].point
    first, second, third = (answer.chains[name] for name in ("topic-0", "topic-1", "never"))
    assert isinstance(first, Delta)
    assert {link.topic for link in first.links} == {"topic-0"}
    assert isinstance(second, Full)
    assert list(second.topics) == ["topic-1"]
    assert isinstance(third, Full)
    assert third.head == ZERO
    assert list(third.topics["never"].records) == []


def test_delta_of_all_follows_transaction_points(store: Store) -> None:
    for i in range(7):
        with store.transaction() as tx:
            for topic in range(1 + i % 4):
                tx.set("t", f"k{topic}", i, topic=f"topic-{topic}")
    first = delta(store, ALL, ZERO)
    assert isinstance(first, Delta)
    points = list(dict.fromkeys(link.point for link in first.links))
    assert len(points) == 7
    assert first.head == points[-1]
    for i, point in enumerate(points):
        rest = [each for each in first.links if each.point in points[i + 1 :]]
        assert delta(store, ALL, point) == Delta(rest, points[-1])
    # A point with the position of a transaction and another nonce is not in the chain.
    assert delta(store, ALL, Point(points[2].position, 1)) == Incomplete()


def test_history_delta_is_incomplete_after_restored_backup(open_store: Opener, database_url: str) -> None:
    store = open_store()
    common = fill(store, 4)
    saved = backup(database_url)
    lost = fill(store, 4, first=4)
    restore(database_url, saved)
    new: list[Link] = []
    for step in range(7):  # the store is behind the lost points, then at each of their positions, then beyond them
        for link in lost:
            assert delta(store, link.topic, link.point) == Incomplete(), (step, link.point)
            assert delta(store, ALL, link.point) == Incomplete(), (step, link.point)
            assert store.read_links(link.point, 100)[2] is False, (step, link.point)
        # The same topics as before: so every lost point gets another point at its position.
        new += fill(store, 1, first=4 + step)
    assert new[-1].point.position > lost[-1].point.position
    assert delta(store, ALL, common[-1].point) == Delta(new, new[-1].point)
    assert_consistent(store)


def test_history_delta_is_incomplete_after_lost_tail_of_changelog(open_store: Opener, database_url: str) -> None:
    store = open_store()
    links = fill(store, 6)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(delete(schema.links).where(schema.links.c.position == links[-1].point.position))
    engine.dispose()
    assert delta(store, links[-1].topic, ZERO) == Incomplete()
    assert delta(store, ALL, links[0].point) == Incomplete()
    assert delta(store, ALL, links[-1].point) == Delta([], links[-1].point)


def test_delta_over_max_links_is_incomplete(open_store: Opener) -> None:
    store = open_store(settings=SETTINGS.__class__(page_size=2, max_delta_links=5))
    links = fill(store, 8)
    assert delta(store, ALL, ZERO) == Incomplete()
    assert delta(store, ALL, links[2].point) == Delta(links[3:], links[-1].point)


# -- following --


def test_read_links_gives_whole_transactions_in_commit_order(store: Store) -> None:
    for i in range(6):
        with store.transaction() as tx:
            for topic in range(3):
                tx.set("t", f"k{topic}", i, topic=f"topic-{topic}")
    known, seen = ZERO, []
    while True:
        links, head, complete = store.read_links(known, 4)
        assert complete
        if not links:
            break
        assert len(links) == 3  # never a part of a second transaction
        known = links[-1].point
        seen += links
    assert known == head
    assert [link.point.position for link in seen] == sorted(3 * (i + 1) for i in range(6) for _ in range(3))
    assert len(store.read_links(ZERO, 1)[0]) == 3  # at least one transaction


def test_reading_of_links_is_bounded_in_bytes(store: Store) -> None:
    """Whole transactions, as many as begin within the bound."""
    sizes = {}
    for number in range(5):
        with store.transaction() as tx:
            for topic in range(2):
                tx.set("t", f"k{topic}", str(number) * 1000, topic=f"topic-{topic}")
        assert tx.commit is not None
        sizes[tx.commit.point] = number
    points = [*sizes]
    known: Point | None = None
    read = []
    while True:
        links, head, complete = store.read_links(known, 1000, 2500)
        assert complete
        if not links:
            break
        read.append([sizes[link.point] for link in links])
        known = links[-1].point
    assert read == [[0, 0, 1, 1], [2, 2, 3, 3], [4, 4]]
    assert known == head == points[-1]
    assert [link.point for link in store.read_links(points[0], 1000, 1)[0]] == [points[1]] * 2, "at least one"
    for maximum in (1, 2, 3):
        assert [link.point for link in store.read_links(None, maximum, 10_000)[0]] == [points[0]] * 2
    assert len(store.read_links(None, 1000)[0]) == 10


def test_read_links_from_none_reads_from_the_beginning(store: Store) -> None:
    assert store.read_links(None, 5) == ([], ZERO, True)
    links = fill(store, 3)
    assert store.read_links(None, 5) == (links, links[-1].point, True)
    store.trim(keep_links=1)
    assert store.read_links(None, 5) == (links[2:], links[-1].point, False)


def test_read_links_reports_a_point_that_does_not_connect(store: Store) -> None:
    links = fill(store, 3)
    assert store.read_links(Point(1, 7), 5)[2] is False
    assert store.read_links(Point(99, 7), 5) == ([], links[-1].point, False)
    assert store.read_links(links[-1].point, 5) == ([], links[-1].point, True)


def test_damaged_link_is_named(open_store: Opener, database_url: str) -> None:
    store = open_store()
    fill(store, 1)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(update(schema.links).values(changes=b"\xc1"))
    engine.dispose()
    with pytest.raises(StoreError, match=r"topic-0.*position 1.*damaged"):
        store.read_links(None, 1)


# -- trimming --


@pytest.mark.parametrize("keep", [0, 1, 4, 7, 100])
def test_trimming_by_count(keep: int, store: Store) -> None:
    links = fill(store, 7)
    assert store.trim(keep_links=keep) == max(0, 7 - keep)
    assert store.read_links(None, 100)[0] == links[7 - min(keep, 7) :]
    assert store.trim(keep_links=keep) == 0


def test_trimming_computes_the_cut_once_for_all_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 12)
    monkeypatch.setattr(changelog, "_BATCH", 2)
    statements: list[str] = []
    for engine in (store._writers, store._readers):
        event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2].upper()))
    assert store.trim(keep_links=3) == 9
    assert sum(" DESC" in each for each in statements) == 1
    assert sum("DELETE" in each for each in statements) == 5


def test_trimming_removes_whole_transactions(store: Store) -> None:
    for i in range(4):
        with store.transaction() as tx:
            for topic in range(3):
                tx.set("t", f"k{topic}", i, topic=f"topic-{topic}")
    assert store.trim(keep_links=4) == 6  # two transactions of three links are kept
    assert len(store.read_links(None, 100)[0]) == 6


def test_trimming_by_age_uses_the_databases_clock(open_store: Opener, database_url: str) -> None:
    store = open_store()
    links = fill(store, 4)
    assert store.trim(keep_seconds=3600) == 0
    engine = create_engine(database_url)
    hour_ago = schema.links.c.stored_at - 3_600_000_000
    with engine.begin() as connection:
        connection.execute(
            update(schema.links).where(schema.links.c.position <= links[1].point.position).values(stored_at=hour_ago)
        )
    engine.dispose()
    assert store.trim(keep_seconds=1800) == 2
    assert store.read_links(None, 100)[0] == links[2:]


def test_trimming_makes_only_older_points_incomplete(store: Store) -> None:
    links = fill(store, 8)
    store.trim(keep_links=3)
    assert delta(store, ALL, links[3].point) == Incomplete()
    assert delta(store, ALL, links[4].point) == Delta(links[5:], links[-1].point)
    for topic in ("topic-0", "topic-1"):
        mine = [link for link in links if link.topic == topic]
        left = [link for link in mine if link in links[5:]]
        assert delta(store, topic, left[0].prev) == Delta(left, mine[-1].point)
        assert delta(store, topic, mine[0].point) == Incomplete()
    store.trim(keep_links=0)
    assert delta(store, ALL, links[-1].point) == Delta([], links[-1].point)
    assert delta(store, "topic-0", ZERO) == Incomplete()
    fill(store, 2, first=8)
    for topic, head in store.topics().items():
        assert store.recount(topic) == head


def test_trimming_rejects_invalid_bounds(store: Store) -> None:
    with pytest.raises(InvalidValueError):
        store.trim(keep_links=-1)
    with pytest.raises(InvalidValueError):
        store.trim(keep_seconds=float("nan"))
    with pytest.raises(InvalidValueError, match=f"at most {MAX_LINKS} links and 3000000000 s"):
        store.trim(keep_links=MAX_LINKS + 1)
    with pytest.raises(InvalidValueError, match=f"at most {MAX_LINKS} links and 3000000000 s"):
        store.trim(keep_seconds=math.nextafter(MAX_SECONDS, math.inf))
    assert store.trim() == 0


def test_trimming_accepts_the_maximum_bounds_of_the_service(store: Store) -> None:
    largest = {option.name: vars(option.type)["max"] for option in options.SERVICE if option.name.startswith("keep_")}
    fill(store, 3)
    assert store.trim(keep_links=largest["keep_links"], keep_seconds=largest["keep_time"]) == 0


# -- looking for a commit ----------------------------------------------------------------------------------------


def test_holds_every_point_of_the_history(store: Store) -> None:
    links = fill(store, 7)
    for link in links:
        assert store.holds(link.topic, [link.point]) == [True]
        assert store.holds(ALL, [link.point]) == [True]
    assert store.holds("topic-0", [ZERO]) == [True]


def test_holds_no_point_of_another_history(open_store: Opener, database_url: str) -> None:
    with open_store() as store:
        fill(store, 3)
        kept = backup(database_url)
        lost = fill(store, 4, first=3)
    restore(database_url, kept)
    with open_store() as store:
        for number in range(6):  # from no new writes to beyond the old position
            for link in lost:
                assert store.holds(link.topic, [link.point]) == [False], (number, link.point)
                assert store.holds(ALL, [link.point]) == [False], (number, link.point)
            fill(store, 1, first=100 + number)


def test_holds_no_point_between_two_links_of_a_topic(store: Store) -> None:
    links = fill(store, 6)
    other = next(link for link in links if link.topic == "topic-1" and link.point.position > 1)
    assert store.holds("topic-0", [other.point]) == [False]


def contains(store: Store, chain: str, point: Point) -> bool | None:
    """``contains_known`` of a full sync from a known point; a repair by buckets must give the same."""
    answers = []
    for want in (Want(known=point), Want(buckets={0: 5}, known=point)):
        answer = store.read_sync({chain: want}).chains[chain]
        assert isinstance(answer, Full)
        answers.append(answer.contains_known)
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.quick_variants(2)
def test_full_sync_reports_whether_history_contains_the_known_point(open_store: Opener, database_url: str) -> None:
    with open_store() as store:
        early = fill(store, 3)
        kept = backup(database_url)
        lost = fill(store, 4, first=3)
        for link in (*early, *lost):
            assert (contains(store, link.topic, link.point), contains(store, ALL, link.point)) == (True, True)
        answer = store.read_sync({ALL: Want()}).chains[ALL]
        assert isinstance(answer, Full)
        assert answer.contains_known is None
    restore(database_url, kept)
    with open_store() as store:
        for number in range(6):
            for link in early:
                assert (contains(store, link.topic, link.point), contains(store, ALL, link.point)) == (True, True)
            for link in lost:
                assert (contains(store, link.topic, link.point), contains(store, ALL, link.point)) == (False, False)
            fill(store, 1, first=100 + number)
        store.trim(keep_links=1)
        assert (contains(store, early[0].topic, early[0].point), contains(store, ALL, early[0].point)) == (None, None)


def test_known_points_of_many_topics_are_looked_up_together(store: Store) -> None:
    points: dict[str, Point] = {}
    for number in range(20):
        with store.transaction() as tx:
            tx.set("t", f"k{number}", 1, topic=f"topic-{number}")
        assert tx.commit is not None
        points[f"topic-{number}"] = tx.commit.point
    with store.transaction() as tx:
        for topic in points:
            tx.set("t", topic, 2, topic=topic)
    asked: list[str] = []
    engine = store._reader_engine()
    event.listen(engine, "before_cursor_execute", lambda _c, _k, statement, *_more: asked.append(statement))
    counts = []
    for topics in (list(points)[:2], list(points)):
        asked.clear()
        answer = store.read_sync({topic: Want(known=points[topic]) for topic in topics})
        assert all(isinstance(each, Full) and each.contains_known for each in answer.chains.values())
        counts.append(sum("pubsub_links" in statement for statement in asked))
    assert counts[0] == counts[1] == 2


def test_holds_returns_none_for_a_trimmed_point(store: Store) -> None:
    links = fill(store, 8)
    store.trim(keep_links=2)
    assert store.holds(ALL, [link.point for link in links]) == [None] * 6 + [True, True]
    store.trim(keep_links=0)
    assert store.holds(ALL, [links[-2].point, links[-1].point]) == [None, True]
    assert store.holds(ALL, [Point(links[-1].point.position, 1), Point(10**6, 1)]) == [False, False]
