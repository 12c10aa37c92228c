"""A walk over a topic's objects: no false faults under load, and every fault is found."""

import random

import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.topic_objects import MAX_NAMED, Rot, TopicObjects, Walk
from tests.unit.core.builders import History

KEYS = 40


def filled(history: History, objects: int = KEYS) -> tuple[Cache, TopicObjects]:
    cache = Cache()
    for number in range(objects):
        cache.apply(history.one("t", f"k{number}", str(number)))
    return cache, cache._topics["t"]


def walk_of(cache: Cache) -> Walk:
    walk = cache.walk("t")
    assert walk is not None
    return walk


def whole(cache: Cache, step: int = 7) -> Rot | None:
    walk = walk_of(cache)
    while not walk.done:
        assert walk.step(step) <= step
    return walk.result()


def test_walk_of_a_correct_topic_finds_no_fault() -> None:
    for step in (1, 7, KEYS, 1000):
        cache, _ = filled(History())
        assert whole(cache, step) is None


def test_step_checks_a_bounded_number_of_objects() -> None:
    cache, _ = filled(History())
    walk = walk_of(cache)
    assert [walk.step(15), walk.step(15), walk.step(15), walk.step(15)] == [15, 15, 10, 0]
    assert walk.done


def test_altered_value_is_found_and_its_fingerprint_corrected() -> None:
    cache, topic = filled(History())
    before = cache.bucket_digests("t")
    entry = topic.tables["port"]["k5"]
    entry.value = b'"rotten"'
    assert cache.bucket_digests("t") == before, "a repair by buckets would not detect it"
    assert whole(cache) == Rot("t", 1, (("port", "k5"),))
    assert len(cache.bucket_digests("t").items() ^ before.items()) == 2, "exactly one bucket differs now"


def test_altered_version_is_found() -> None:
    for version in (0, 3, 10_000):
        cache, topic = filled(History())
        topic.tables["port"]["k5"].version = version
        assert whole(cache) == Rot("t", 1, (("port", "k5"),)), version


def test_altered_fingerprint_is_found_and_corrected() -> None:
    cache, topic = filled(History())
    topic.tables["port"]["k5"].fingerprint ^= 1
    assert whole(cache) == Rot("t", 1, (("port", "k5"),))
    assert whole(cache) is None


def test_missing_object_is_found_by_count_and_digest() -> None:
    cache, topic = filled(History())
    del topic.tables["port"]["k5"]
    assert whole(cache) == Rot("t", 1, ())


def test_replaced_object_is_found_although_the_count_is_right() -> None:
    cache, topic = filled(History())
    topic.tables["port"]["stranger"] = topic.tables["port"].pop("k5")
    rot = whole(cache)
    assert rot is not None
    assert rot.names == (("port", "stranger"),), "its fingerprint belongs to another key"


def test_object_lost_in_the_merged_view_is_shown_again() -> None:
    cache, _ = filled(History())
    del cache._merged.shown["port"]["k5"]
    assert cache.get("port", "k5") is None
    assert whole(cache) == Rot("t", 1, (("port", "k5"),))
    assert cache.get("port", "k5") == b"5"
    assert whole(cache) is None


def two_topics() -> tuple[Cache, History]:
    """An object in two topics; the newer one shows."""
    history, cache = History(), Cache()
    for topic, value in (("u", "old"), ("t", "new")):
        cache.apply(history.one(topic, "k1", value))
    return cache, history


def test_object_of_two_topics_that_the_merged_view_lost_is_shown_again() -> None:
    cache, _ = two_topics()
    del cache._merged.shown["port"]["k1"]
    assert whole(cache) == Rot("t", 1, (("port", "k1"),))
    assert cache.get("port", "k1") == b"new"
    assert whole(cache) is None


def test_older_object_of_two_topics_is_replaced_in_the_merged_view() -> None:
    cache, _ = two_topics()
    cache._merged.shown["port"]["k1"] = cache._topics["u"].tables["port"]["k1"]
    assert cache.get("port", "k1") == b"old"
    assert whole(cache) == Rot("t", 1, (("port", "k1"),))
    assert cache.get("port", "k1") == b"new"


def test_object_that_a_delete_in_another_topic_hides_stays_hidden() -> None:
    cache, history = two_topics()
    cache.apply(history.one("t", "k1", None))
    hidden = cache.get("port", "k1")
    assert whole(cache) is None
    walk = cache.walk("u")
    assert walk is not None
    while not walk.done:
        walk.step(7)
    assert walk.result() is None
    assert cache.get("port", "k1") == hidden


def test_object_in_two_topics_is_no_fault() -> None:
    history, cache = History(), Cache()
    for topic in ("t", "u"):
        cache.apply(history.one(topic, "k1", "1"))
    assert whole(cache) is None


def test_walk_counts_all_faults_and_names_some() -> None:
    cache, topic = filled(History())
    for entry in topic.tables["port"].values():
        entry.value = b"0000"
    rot = whole(cache)
    assert rot is not None
    assert (rot.objects, len(rot.names)) == (KEYS, MAX_NAMED)


def test_sync_or_drop_ends_a_walk() -> None:
    for ends in ("replace", "drop"):
        history = History()
        cache, _ = filled(history)
        walk = walk_of(cache)
        walk.step(3)
        if ends == "replace":
            cache.replace("t", history._snapshot("t", None))
        else:
            cache.drop("t")
        assert walk.over


def scribble(history: History, cache: Cache, rng: random.Random) -> None:
    """Some transactions: creates, sets, deletes, and re-creates."""
    for _ in range(rng.randrange(4)):
        keys = rng.sample(range(KEYS + 20), 3)
        there = history.objects["t"]
        writes = [
            ("t", f"k{key}", str(rng.randrange(99)) if ("port", f"k{key}") not in there or rng.random() < 0.6 else None)
            for key in keys
        ]
        faults = cache.apply_run(history.commit(*writes), None)
        assert faults == []


@pytest.mark.parametrize("block", range(4))
def test_links_between_the_steps_cause_no_fault(block: int, seed: int) -> None:
    for number in range(100):
        rng = random.Random(seed + number)
        history = History(seed + number)
        cache, _ = filled(history)
        walk = walk_of(cache)
        while not walk.done:
            walk.step(rng.randrange(1, 9))
            scribble(history, cache, rng)
        assert walk.result() is None, seed + number


def _altered(topic: TopicObjects, key: str) -> None:
    topic.tables["port"][key].value = b"rotten"


def _aged(topic: TopicObjects, key: str) -> None:
    topic.tables["port"][key].version -= 1


def _lost(topic: TopicObjects, key: str) -> None:
    del topic.tables["port"][key]


@pytest.mark.parametrize("spoil", [_altered, _aged, _lost])
def test_fault_before_a_walk_is_found_under_load(spoil: object, seed: int) -> None:
    """Unless a link wrote the object before the walk checked it: that repairs it, or fails by itself."""
    assert callable(spoil)
    found = healed = 0
    for number in range(200):
        rng = random.Random(seed + number)
        history = History(seed + number)
        cache, topic = filled(history)
        key = rng.choice(list(topic.tables["port"]))
        spoil(topic, key)
        walk = walk_of(cache)
        wrote = False
        while not walk.done:
            walk.step(rng.randrange(1, 9))
            links = history.commit(("t", f"k{KEYS + rng.randrange(20)}", str(number)))
            if rng.random() < 0.02:
                links += history.commit(("t", key, "new"))
                wrote = True
            cache.apply_run(links, None)
        rot = walk.result()
        if rot is None:
            assert wrote, (seed + number, key)
            healed += 1
        else:
            found += 1
    print(f"found {found}, written again meanwhile {healed}")
    assert found > 100
