"""The database is recounted in the background, only by the lease holder, within recount_time."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, update
from sqlalchemy import text as sql

from pubsub_lib.core.model import Head
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.service.recount import MAX_PAUSE, OFF, PAUSE, REPAIRING, TOPICS, StoreRecount
from pubsub_lib.store import Store, schema
from pubsub_lib.store.repair import Repaired
from pubsub_lib.store.repair_plan import Cursor, Page
from pubsub_lib.threads.periodic_thread import AFTER_FAILURE
from tests.unit.store.test_repair import (
    Damage,
    bucket,
    contents,
    fill,
    harm,
    head,
    lost,
    text,
    topic_row,
    value,
    version,
)

WITHIN = 100.0
COUNT = 2500
"""Rows: three pages."""


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url) as store:
        fill(store, COUNT)
        yield store


def run(recount: StoreRecount, begin: float, seconds: float) -> list[float]:
    """Step like the loop; returns the times of the steps."""
    times = []
    now = begin
    while now <= begin + seconds:
        times.append(now)
        now = recount.step(now)
        assert now > times[-1], "the loop would spin"
    return times


@pytest.mark.quick_variants(10)
@pytest.mark.parametrize(
    "damage", [value, version, lost, head, bucket, topic_row, text], ids=lambda each: each.__name__
)
@pytest.mark.parametrize("when", [0.0, 0.3, 1.7, 49.0])
def test_rows_altered_at_any_time_are_repaired_within_recount_time(
    damage: Damage, when: float, store: Store, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    right, heads = contents(store), store.topics()
    recount = StoreRecount(store, lambda now: True, WITHIN)
    now = 0.0
    while now < when:
        now = recount.step(now)
    harm(sqlite_url, damage)
    with caplog.at_level(logging.ERROR):
        run(recount, now, when + WITHIN - now)
    assert (contents(store), store.topics()) == (right, heads)
    counters = recount.counters()
    assert (counters["rotted"], counters["repaired"]) == (1, 1)
    assert len(caplog.records) == 1
    assert recount.unrepaired() == []


def test_recount_makes_two_rounds_over_every_row_in_recount_time(store: Store) -> None:
    recount = StoreRecount(store, lambda now: True, WITHIN)
    times = run(recount, 0.0, WITHIN - 1)
    assert recount.counters() == {"rounds": 2, "objects": 2 * COUNT, "rotted": 0, "repaired": 0, "overtaken": 0}
    assert len(times) < 20


def test_recount_is_faster_for_many_rows_or_a_short_time(store: Store) -> None:
    recount = StoreRecount(store, lambda now: True, 0.2)
    run(recount, 0.0, 0.5)
    assert recount.counters()["rounds"] >= 4


def test_adjusted_time_is_that_of_the_next_round(store: Store) -> None:
    recount = StoreRecount(store, lambda now: True, WITHIN)
    run(recount, 0.0, WITHIN / 2 - 1)
    assert recount.counters()["rounds"] == 1
    recount.adjust(0.2)
    run(recount, WITHIN / 2 - 1, 0.5)
    assert recount.counters()["rounds"] >= 4
    recount.adjust(0.0)
    assert recount.step(WITHIN) == WITHIN + OFF
    recount.adjust(WITHIN)
    rounds = recount.counters()["rounds"]
    run(recount, WITHIN, WITHIN - 1)
    assert recount.counters()["rounds"] == rounds + 2


def test_recount_that_is_turned_off_stops_its_round_and_reports_nothing(
    store: Store, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.trim(keep_links=0)
    harm(sqlite_url, value)
    recount = StoreRecount(store, lambda now: True, WITHIN)
    run(recount, 0.0, WITHIN / 2 + 1)  # one round, and a part of the next one
    assert recount._running
    assert recount.unrepaired()
    recount.adjust(0.0)
    assert recount.step(WITHIN) == WITHIN + OFF
    assert recount.unrepaired() == []
    recount.adjust(WITHIN)
    caplog.clear()
    rounds, objects = recount.counters()["rounds"], recount.counters()["objects"]
    run(recount, 5 * WITHIN, WITHIN / 2 - 1)
    assert recount.counters()["rounds"] == rounds + 1
    assert recount.counters()["objects"] == objects + COUNT, "the round that was stopped must not go on"
    assert recount.unrepaired()
    assert len(caplog.records) == 1


def test_time_that_is_adjusted_within_a_step_is_that_of_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recount = StoreRecount(store, lambda now: True, WITHIN)
    heads = store.topics()

    def turn_off() -> Mapping[str, Head]:
        recount.adjust(0.0)
        return heads

    monkeypatch.setattr(store, "topics", turn_off)
    assert recount.step(5.0) == 5.0 + PAUSE
    assert recount.step(6.0) == 6.0 + OFF


def test_round_whose_begin_failed_begins_again(
    store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.trim(keep_links=0)
    harm(sqlite_url, topic_row)  # only the comparison of the heads finds it
    recount = StoreRecount(store, lambda now: True, WITHIN)
    run(recount, 0.0, WITHIN / 2 - 1)
    damaged = recount.unrepaired()
    assert damaged

    def unreachable() -> Mapping[str, Head]:
        raise StoreUnavailable("reading heads failed")

    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
        patch.setattr(store, "topics", unreachable)
        recount.step(WITHIN / 2)
    run(recount, WITHIN / 2, WITHIN / 2 - 1)
    assert recount.counters()["rounds"] == 2
    assert recount.unrepaired() == damaged


def test_only_the_lease_holder_recounts_and_zero_disables_it(store: Store) -> None:
    idle = StoreRecount(store, lambda now: False, WITHIN)
    run(idle, 0.0, WITHIN)
    assert idle.counters()["objects"] == 0
    off = StoreRecount(store, lambda now: True, 0.0)
    assert off.step(5.0) == 5.0 + OFF
    assert off.counters()["objects"] == 0


def test_unrepaired_topic_is_logged_once_and_shown_until_repaired(
    store: Store, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.trim(keep_links=0)
    harm(sqlite_url, value)
    recount = StoreRecount(store, lambda now: True, WITHIN)
    with caplog.at_level(logging.ERROR):
        run(recount, 0.0, 3 * WITHIN)
    assert recount.unrepaired() == ["t"]
    assert (recount.counters()["rotted"], recount.counters()["repaired"]) == (1, 0)
    (record,) = caplog.records
    assert "port 'k7'" in record.getMessage()
    assert "pubsub-db verify" in record.getMessage()
    with store.transaction() as tx:
        tx.set("port", "k7", {"n": "by hand"}, topic="t")
    run(recount, 4 * WITHIN, WITHIN)
    assert recount.unrepaired() == []


def test_damage_found_in_a_round_that_lost_its_lease_is_not_reported(store: Store, sqlite_url: str) -> None:
    """The new holder reports it. Here it could not be seen to be repaired."""
    store.trim(keep_links=0)
    harm(sqlite_url, value)
    held = True
    recount = StoreRecount(store, lambda now: held, WITHIN)
    now = 0.0
    while not recount.unrepaired():
        now = recount.step(now)
    held = False
    recount.step(now)
    assert recount.unrepaired() == []


def lose(key: str) -> Damage:
    return lambda connection: connection.execute(delete(schema.objects).where(schema.objects.c.object_key == key))


def alter(key: str) -> Damage:
    return lambda connection: connection.execute(
        update(schema.objects).where(schema.objects.c.object_key == key).values(value=b'{"n":"rotten, too"}')
    )


@pytest.mark.parametrize("later", [alter, lose], ids=lambda each: each.__name__)
def test_recount_logs_later_rot_of_a_topic_with_unrepaired_rot(
    later: Callable[[str], Damage], store: Store, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.trim(keep_links=0)
    harm(sqlite_url, value)
    recount = StoreRecount(store, lambda now: True, WITHIN)
    with caplog.at_level(logging.ERROR):
        run(recount, 0.0, WITHIN)
        assert recount.counters()["rotted"] == 1
        harm(sqlite_url, later("k8"))
        run(recount, 2 * WITHIN, 2 * WITHIN)
        assert recount.counters()["rotted"] == 2
        harm(sqlite_url, later("k9"))
        run(recount, 5 * WITHIN, 2 * WITHIN)
    assert recount.counters()["rotted"] == 3
    first, second, third = (record.getMessage() for record in caplog.records)
    assert "port 'k7'" in first
    if later is alter:
        assert ("port 'k8'" in second, "port 'k7'" in second) == (True, False), "only new damage is named"
        assert "port 'k9'" in third
    assert recount.unrepaired() == ["t"]


def test_recount_counts_repaired_objects_beside_unrepaired_rot_once(
    store: Store, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.trim(keep_links=0)
    with store.transaction() as tx:
        tx.set("port", "k8", {"n": "in the changelog"}, topic="t")
    harm(sqlite_url, value)
    recount = StoreRecount(store, lambda now: True, WITHIN)
    with caplog.at_level(logging.ERROR):
        run(recount, 0.0, WITHIN)
        for number in (1, 2):
            harm(sqlite_url, alter("k8"))
            run(recount, 2 * number * WITHIN, WITHIN)
            assert (recount.counters()["rotted"], recount.counters()["repaired"]) == (1 + number, number)
    assert store.get("port", "k8") == {"n": "in the changelog"}
    assert len(caplog.records) == 3
    assert "they were repaired" in caplog.records[1].getMessage()


def test_recount_logs_unrepaired_rot_of_several_pages_once(
    store: Store, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.trim(keep_links=0)
    harm(sqlite_url, *(alter(f"k{number}") for number in range(0, COUNT, 100)))
    recount = StoreRecount(store, lambda now: True, WITHIN)
    with caplog.at_level(logging.ERROR):
        run(recount, 0.0, WITHIN)
        logged = len(caplog.records)
        run(recount, 2 * WITHIN, 2 * WITHIN)
    assert recount.counters()["rotted"] == COUNT / 100
    assert 1 <= logged == len(caplog.records) <= 3, "one line per page"


def damaged_link(connection: Connection) -> None:
    """A link that cannot be decoded, and a lost object that only this link contains."""
    connection.execute(sql("UPDATE pubsub_links SET changes = x'00' WHERE topic = 'a'"))
    connection.execute(delete(schema.objects).where(schema.objects.c.object_key == "a-1"))


def text_bucket(connection: Connection) -> None:
    """A text bucket, which only SQLite accepts, and a lost object: the repair of the topic compares buckets."""
    connection.execute(sql("UPDATE pubsub_objects SET bucket = 'x' WHERE object_key = 'a-1'"))
    connection.execute(delete(schema.objects).where(schema.objects.c.object_key == "a-2"))


def both_altered(connection: Connection) -> None:
    """Damaged rows of both topics on one page, so that both repairs are due in one step."""
    connection.execute(sql("UPDATE pubsub_links SET changes = x'00' WHERE topic = 'a'"))
    connection.execute(sql("UPDATE pubsub_objects SET value = x'39' WHERE object_key IN ('a-1', 'b-1')"))


@pytest.mark.parametrize("damage", [damaged_link, text_bucket, both_altered], ids=lambda each: each.__name__)
def test_recount_repairs_other_topics_when_the_repair_of_one_fails(
    damage: Damage, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(sqlite_url) as store:
        for topic in "abc":
            fill(store, 10, topic)
        right = {each.ident: each for each in contents(store) if each.topic != "a"}
        harm(sqlite_url, damage, lose("b-2"), lose("c-3"))
        recount = StoreRecount(store, lambda now: True, WITHIN)
        with caplog.at_level(logging.ERROR):
            run(recount, 0.0, 2 * WITHIN)
        assert {each.ident: each for each in contents(store) if each.topic != "a"} == right
        assert recount.unrepaired() == ["a"]
        failed = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
        assert len(failed) == 1, "logged once, not in each round"
        assert "the repair of the topic 'a' failed: " in failed[0]
        assert ("its bucket is 'x'" if damage is text_bucket else "position 10 is damaged") in failed[0]
        store.trim(keep_links=0)
        store.accept("a")
        run(recount, 4 * WITHIN, WITHIN)
        assert recount.unrepaired() == []


class Flaky:
    """A store whose calls are refused: ``refuses(method, topics)`` decides which."""

    def __init__(self, store: Store, refuses: Callable[[str, Collection[str]], bool]) -> None:
        self.topics, self.look_at_rows = store.topics, store.look_at_rows
        self._store, self._refuses = store, refuses

    def unfit(self, topics: Collection[str]) -> list[str]:
        self._answer("unfit", topics)
        return self._store.unfit(topics)

    def repair(self, topic: str, suspects: Collection[tuple[str, str]] = ()) -> Repaired:
        self._answer("repair", [topic])
        return self._store.repair(topic, suspects)

    def _answer(self, method: str, topics: Collection[str]) -> None:
        if self._refuses(method, topics):
            raise StoreUnavailable("the database does not answer in time")


def test_step_repairs_for_a_bounded_time_and_then_the_next_one_does(store: Store, sqlite_url: str) -> None:
    """A step that repairs all topics would count as one of a thread that hangs."""
    fill_topics(store, 20)
    right = {each.ident: each for each in contents(store)}
    harm(sqlite_url, *(lose(f"t{number:03d}-1") for number in range(20)))
    clock, repaired = [0.0], [0]

    def takes_a_second(method: str, topics: Collection[str]) -> bool:
        clock[0] += method == "repair"
        repaired[0] += method == "repair"
        return False

    recount = StoreRecount(Flaky(store, takes_a_second), lambda now: True, WITHIN, clock=lambda: clock[0])
    now, most = 0.0, 0
    while now < WITHIN / 2 - 1:
        before = repaired[0]
        now = recount.step(now)
        most = max(most, repaired[0] - before)
    assert most == REPAIRING
    assert {each.ident: each for each in contents(store)} == right
    assert (recount.counters()["rounds"], recount.counters()["repaired"]) == (1, 20)


def test_no_more_rows_are_read_while_topics_wait_for_their_repair(store: Store, sqlite_url: str) -> None:
    for number in range(5):
        fill(store, 2, f"a{number}")
    harm(sqlite_url, *(alter(f"a{number}-1") for number in range(5)))
    clock = [0.0]
    looked: list[float] = []

    def takes_a_second(method: str, topics: Collection[str]) -> bool:
        clock[0] += method == "repair"
        return False

    flaky = Flaky(store, takes_a_second)
    recount = StoreRecount(flaky, lambda now: True, WITHIN, clock=lambda: clock[0])
    look = flaky.look_at_rows

    def look_at_rows(after: Cursor | None, maximum: int) -> Page:
        looked.append(clock[0])
        assert len(recount._suspects) == 0
        return look(after, maximum)

    flaky.look_at_rows = look_at_rows
    run(recount, 0.0, WITHIN / 2 - 1)
    assert len(looked) == 3
    assert recount.counters()["rotted"] == 5


def fill_topics(store: Store, number: int) -> None:
    """Make this many topics, t000 and so on, of two objects each."""
    for each in range(number):
        fill(store, 2, f"t{each:03d}")


def persist(recount: StoreRecount, begin: float, seconds: float) -> int:
    """Step like the loop, also after failures; returns how many steps failed."""
    now, failed = begin, 0
    while now <= begin + seconds:
        try:
            now = recount.step(now)
        except StoreUnavailable:
            now, failed = now + recount.pause(), failed + 1
    return failed


@pytest.mark.parametrize("damage", [alter, lose], ids=lambda each: each.__name__)
@pytest.mark.parametrize("method", ["unfit", "repair"])
@pytest.mark.parametrize("times", [1, 3])
def test_recount_looks_at_topics_again_after_an_outage(
    times: int, method: str, damage: Callable[[str], Damage], sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(sqlite_url) as store:
        for topic in "abc":
            fill(store, 10, topic)
        right = contents(store)
        harm(sqlite_url, *(damage(f"{topic}-1") for topic in "abc"))
        left = [True] * times
        recount = StoreRecount(
            Flaky(store, lambda name, topics: name == method and bool(left) and left.pop()), lambda now: True, WITHIN
        )
        with caplog.at_level(logging.ERROR):
            assert persist(recount, 0.0, WITHIN / 2 - 1) == times
        assert contents(store) == right
        counters = recount.counters()
        assert (counters["rounds"], counters["objects"]) == (1, 30 - 3 * (damage is lose)), "no page was read twice"
        assert (counters["rotted"], counters["repaired"]) == (3, 3)
        assert len(caplog.records) == 3
        assert recount.unrepaired() == []


@pytest.mark.parametrize("damage", [alter, lose], ids=lambda each: each.__name__)
def test_recount_goes_on_while_the_repair_of_one_topic_always_times_out(
    damage: Callable[[str], Damage], sqlite_url: str
) -> None:
    with Store(sqlite_url) as store:
        for topic in "abc":
            fill(store, COUNT // 2, topic)
        right = {each.ident: each for each in contents(store) if each.topic != "a"}
        harm(sqlite_url, *(damage(f"{topic}-1") for topic in "abc"))
        hung = StoreRecount(
            Flaky(store, lambda name, topics: name == "repair" and "a" in topics), lambda now: True, WITHIN
        )
        assert persist(hung, 0.0, WITHIN / 2 - 1) > 5, "it is tried again in this round"
        assert {each.ident: each for each in contents(store) if each.topic != "a"} == right
        assert hung.counters()["rounds"] == 0
        harm(sqlite_url, damage("b-2"))
        persist(hung, WITHIN / 2 - 1, WITHIN / 3)
        assert {each.ident: each for each in contents(store) if each.topic != "a"} == right, "the next round has begun"


def test_recount_goes_on_while_the_sums_of_one_topic_always_time_out(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        fill_topics(store, 2 * TOPICS + 10)
        last = f"t{2 * TOPICS + 9:03d}"
        right = contents(store)
        harm(sqlite_url, lose("t000-1"), lose("t150-1"))
        flaky = Flaky(store, lambda name, topics: name == "unfit" and last in topics)
        hung = StoreRecount(flaky, lambda now: True, WITHIN)
        assert persist(hung, 0.0, WITHIN / 2 - 1) > 5
        assert contents(store) == right
        harm(sqlite_url, lose("t000-1"))
        persist(hung, WITHIN / 2 - 1, WITHIN / 3)
        assert contents(store) == right, "the next round has begun"


@pytest.mark.parametrize("others", [1, TOPICS + 10])
def test_recount_repairs_other_topics_while_one_is_neither_compared_nor_repaired(others: int, sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        fill_topics(store, others + 1)
        right = {each.ident: each for each in contents(store) if each.topic != "t000"}
        harm(sqlite_url, alter("t000-1"), *(lose(f"t{number:03d}-1") for number in range(1, others + 1, 9)))
        hung = StoreRecount(Flaky(store, lambda name, topics: "t000" in topics), lambda now: True, WITHIN)
        persist(hung, 0.0, WITHIN / 2 - 1)
        assert {each.ident: each for each in contents(store) if each.topic != "t000"} == right
        harm(sqlite_url, lose(f"t{others:03d}-1"))
        persist(hung, WITHIN / 2 - 1, WITHIN / 2)
        assert {each.ident: each for each in contents(store) if each.topic != "t000"} == right, "the next round"


def test_round_ends_while_one_topic_is_not_compared_and_another_not_repaired(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        fill_topics(store, 2 * TOPICS + 1)
        harm(sqlite_url, lose("t100-1"), lose("t200-1"))
        refused = {"unfit": "t000", "repair": "t200"}
        hung = StoreRecount(Flaky(store, lambda name, topics: refused[name] in topics), lambda now: True, WITHIN)
        persist(hung, 0.0, WITHIN / 2 - 1)
        harm(sqlite_url, lose("t050-1"))
        persist(hung, WITHIN / 2 - 1, WITHIN / 2)
        assert store.unfit([f"t{number:03d}" for number in range(2 * TOPICS + 1)]) == ["t200"]


def test_recount_waits_longer_each_time_when_only_refused_topics_are_left(store: Store) -> None:
    away = True
    recount = StoreRecount(Flaky(store, lambda name, topics: away), lambda now: True, 20 * MAX_PAUSE)
    now, pauses = 0.0, []
    while now < 5 * MAX_PAUSE:
        try:
            now = recount.step(now)
        except StoreUnavailable:
            pauses.append(recount.pause())
            now += pauses[-1]
    assert pauses == [min(AFTER_FAILURE * 2.0**number, MAX_PAUSE) for number in range(len(pauses))]
    assert pauses[-1] == MAX_PAUSE
    away = False
    recount.step(now)
    assert recount.counters()["rounds"] == 1
    assert recount.pause() == AFTER_FAILURE, "the next round begins"


def test_damage_of_before_is_reported_while_its_topic_cannot_be_looked_at(store: Store, sqlite_url: str) -> None:
    store.trim(keep_links=0)
    harm(sqlite_url, value)
    away = False
    recount = StoreRecount(Flaky(store, lambda name, topics: away), lambda now: True, WITHIN)
    persist(recount, 0.0, WITHIN / 2 - 1)
    assert recount.unrepaired() == ["t"]
    away = True
    persist(recount, WITHIN / 2, 2 * WITHIN)
    assert recount.unrepaired() == ["t"]
    away = False
    persist(recount, 3 * WITHIN, WITHIN)
    assert (recount.unrepaired(), recount.counters()["rotted"]) == (["t"], 1), "found once"


def test_recount_ends_the_step_when_the_database_does_not_answer(store: Store, sqlite_url: str) -> None:
    class Away:
        topics, look_at_rows, unfit = store.topics, store.look_at_rows, store.unfit

        def repair(self, topic: str, suspects: object = ()) -> Repaired:
            raise StoreUnavailable("the database is unreachable")

    harm(sqlite_url, value)
    recount = StoreRecount(Away(), lambda now: True, WITHIN)
    with pytest.raises(StoreUnavailable):
        run(recount, 0.0, WITHIN)
    assert recount.unrepaired() == []


def test_recount_writes_damage_to_the_journal(store: Store, sqlite_url: str, tmp_path: Path) -> None:
    journal = Journal(JournalSettings(str(tmp_path)), "service", "api-1")
    harm(sqlite_url, value)
    run(StoreRecount(store, lambda now: True, WITHIN, journal), 0.0, WITHIN)
    journal.close()
    found = find([tmp_path])
    rows = [row for path in (*found.parquet, *found.append) for row in read(path)]
    assert [(row.topic, row.cause, row.count, row.size) for row in rows if row.kind == "rot"] == [("t", "store", 1, 1)]
