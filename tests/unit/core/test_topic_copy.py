"""Copies of a topic: all objects of one moment, however the topic changes while they are read."""

import gc
import random
from collections.abc import Iterable

import pytest

from pubsub_lib.core import topic_copy
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.model import Record
from pubsub_lib.core.topic_copy import TopicCopy
from tests.unit.core.builders import History
from tests.unit.core.test_topic_objects import KEYS, filled, scribble, walk_of


def sorted_records(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda each: (each.table, each.key))


def now(cache: Cache) -> list[Record]:
    return sorted_records(cache.topic_records("t"))


class Reading:
    """A copy that is read by steps, and what it must find."""

    def __init__(self, cache: Cache) -> None:
        self.expected = now(cache)
        self.copy = cache.copy("t")
        self.found: list[Record] = []
        self.done = False

    def step(self) -> int:
        """Returns the number of objects."""
        part = self.copy.step()
        if part is None:
            self.done = True
            return 0
        table, rows = part
        self.found += [Record(table, *row) for row in rows]
        return len(rows)

    def finish(self) -> list[Record]:
        while not self.done:
            self.step()
        return sorted_records(self.found)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_copy, "STEP", 7)


def test_copy_reads_all_objects_in_bounded_steps() -> None:
    cache, _ = filled(History())
    reading = Reading(cache)
    assert len(reading.copy) == KEYS
    assert [reading.step() for _ in range(7)] == [7, 7, 7, 7, 7, 5, 0]
    assert reading.finish() == reading.expected == now(cache)


def test_copy_of_a_topic_without_objects_is_empty() -> None:
    history = History()
    emptied, _ = filled(history, 1)
    emptied.apply(history.one("t", "k0", None))
    for cache in (Cache(), emptied):
        assert list(cache.copy("t")) == []
        assert cache.copy("t").step() is None


@pytest.mark.parametrize("block", range(4))
def test_copies_have_the_objects_of_their_begin_whatever_links_change(block: int, seed: int) -> None:
    """Several copies and a recount at the same time; each begins at another point."""
    for number in range(30):
        rng = random.Random(seed * 1000 + 30 * block + number)
        history = History(rng.randrange(2**32))
        cache, topic = filled(history)
        readings: list[Reading] = []
        walk = walk_of(cache)
        while len(readings) < 4 or not walk.done or not all(each.done for each in readings):
            if len(readings) < 4 and rng.random() < 0.5:
                readings.append(Reading(cache))
            for each in readings:
                if rng.random() < 0.6:
                    each.step()
            walk.step(rng.randrange(9))
            scribble(history, cache, rng)
        assert walk.result() is None
        for each in readings:
            assert sorted_records(each.found) == each.expected, number
        cache.apply(history.one("t", "k1", "last"))
        assert not topic.copies, "nothing is kept for copies that were read"


@pytest.mark.parametrize("ends", ["replace", "drop"])
def test_copy_has_its_objects_after_the_topic_was_replaced_or_dropped(ends: str) -> None:
    history = History()
    cache, topic = filled(history)
    reading = Reading(cache)
    reading.step()
    cache.apply(history.one("t", "k0", None))
    cache.apply(history.one("t", "k1", "changed"))
    if ends == "replace":
        history.one("t", "k2", "by the sync")
        history.one("t", "k3", None)
        cache.replace("t", history._snapshot("t", None))
    else:
        cache.drop("t")
    cache.apply(history.one("t", "k4", None))
    assert reading.finish() == reading.expected
    assert not topic.copies


def test_copy_has_its_objects_after_a_first_sync_of_a_topic_that_was_emptied() -> None:
    history = History()
    cache, _ = filled(history)
    reading = Reading(cache)
    cache.drop("t")
    cache.replace("t", history._snapshot("t", None))
    cache.apply(history.one("t", "k4", None))
    assert reading.finish() == reading.expected


def test_copy_without_an_owner_is_forgotten() -> None:
    history = History()
    cache, topic = filled(history)
    copy = cache.copy("t")
    assert topic.copies
    del copy
    gc.collect()
    cache.apply(history.one("t", "k1", "changed"))
    assert not topic.copies
    for _ in range(10):
        cache.copy("t")
    assert len(topic.copies) == 1, "also when no link arrives"


def test_copy_keeps_an_old_value_only_until_it_is_read() -> None:
    history = History()
    cache, _ = filled(history)
    reading = Reading(cache)
    for number in range(KEYS):
        cache.apply(history.one("t", f"k{number}", "changed"))
    assert sum(map(len, reading.copy._before.values())) == KEYS
    assert reading.finish() == reading.expected
    assert not reading.copy._before


def test_object_lost_in_memory_is_left_out() -> None:
    """The count of the copy then differs from that of the topic's head, as the replica's does."""
    cache, topic = filled(History())
    reading = Reading(cache)
    del topic.tables["port"]["k5"]
    assert reading.finish() == now(cache)
    assert len(reading.found) == KEYS - 1


def test_copy_as_a_sequence_is_read_any_number_of_times() -> None:
    history = History()
    cache, _ = filled(history)
    copy, expected = cache.copy("t"), now(cache)
    cache.apply(history.one("t", "k1", "changed"))
    assert len(copy) == len(expected)
    for _ in range(2):
        assert sorted_records(copy) == expected
        assert sorted_records(copy[:3] + copy[3:]) == expected
    assert copy[0] in expected
    assert copy == list(copy)
    assert copy != cache.copy("t")
    assert copy != 1


def test_copy_that_was_read_by_steps_is_no_sequence_any_more() -> None:
    cache, _ = filled(History())
    copy = cache.copy("t")
    copy.step()
    with pytest.raises(RuntimeError, match="read by steps"):
        list(copy)


def test_copy_of_several_tables_returns_one_table_in_each_step() -> None:
    tables = {name: dict(filled(History(), 10)[1].tables["port"]) for name in ("a", "b")}
    copy = TopicCopy({**tables, "empty": {}})
    found = [part[0] for part in iter(copy.step, None)]
    assert found == sorted(found, reverse=True)
    assert {name: found.count(name) for name in found} == {"b": 2, "a": 2}
