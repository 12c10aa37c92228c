"""The schedule of the recount: every object within the time, in bounded steps."""

import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.recount import PAUSE, STEP_OBJECTS, TOPIC_COST, Recount
from tests.unit.core.builders import History


def filled(**topics: int) -> tuple[History, Cache]:
    history, cache = History(), Cache()
    for topic, objects in topics.items():
        if objects:
            cache.apply_run(history.commit(*[(topic, f"{topic}{each}", "1") for each in range(objects)]), None)
    return history, cache


def never(_: str) -> bool:
    return False


def test_recount_time_0_disables_the_recount() -> None:
    recount = Recount(0.0, 5.0)
    assert recount.next_time == float("inf")
    assert recount.step(filled(t=3)[1], never, 1e9) == ()


def test_round_ends_within_half_of_the_time_in_bounded_steps() -> None:
    _, cache = filled(t=3 * STEP_OBJECTS, u=700, v=1, w=2)
    recount = Recount(60.0, 0.0)
    now = recount.next_time
    assert now == 30.0
    steps = []
    while recount.rounds == 0:
        before = recount.objects
        assert recount.step(cache, never, now) == []
        steps.append(recount.objects - before)
        assert recount.next_time > now
        now = recount.next_time
    assert sum(steps) == 3 * STEP_OBJECTS + 703
    assert max(steps) <= STEP_OBJECTS
    assert now == 60.0, "the next round begins half of the time after this one began"


def test_altered_object_is_found_within_the_time() -> None:
    for moment in range(0, 130, 7):
        _, cache = filled(t=1200, u=900)
        recount = Recount(60.0, 0.0)
        spoilt, found, now = False, -1.0, 0.0
        while found < 0:
            now = recount.next_time
            if now >= moment and not spoilt:
                del cache._topics["u"].tables["port"]["u5"]
                spoilt = True
            if [rot.topic for rot in recount.step(cache, never, now)] == ["u"]:
                found = now
        assert found - moment <= 60.0, moment


def test_short_recount_time_shortens_the_pauses() -> None:
    _, cache = filled(t=20 * STEP_OBJECTS)
    recount = Recount(0.2, 0.0)
    now = recount.next_time
    while recount.rounds == 0:
        recount.step(cache, never, now)
        now = recount.next_time
    assert now <= 0.2
    assert PAUSE > 0.2 / 4 / 20


def test_many_small_topics_take_several_steps() -> None:
    topics = 3 * STEP_OBJECTS // TOPIC_COST
    _, cache = filled(**{f"t{number}": 1 for number in range(topics)})
    recount = Recount(60.0, 0.0)
    recount.step(cache, never, 30.0)
    assert 0 < recount.objects <= STEP_OBJECTS // TOPIC_COST


def test_topics_to_be_read_again_are_left_out() -> None:
    _, cache = filled(t=3, u=3)
    cache._topics["t"].tables["port"]["t1"].value = b"rotten"
    recount = Recount(60.0, 0.0)
    assert recount.step(cache, lambda topic: topic == "t", 30.0) == []
    assert recount.objects == 3


@pytest.mark.parametrize("ends", ["replace", "drop"])
def test_walk_ended_by_a_sync_has_no_result(ends: str) -> None:
    history, cache = filled(t=STEP_OBJECTS + 9)
    recount = Recount(60.0, 0.0)
    cache._topics["t"].tables["port"]["t1"].value = b"rotten"
    recount.step(cache, never, 30.0)
    if ends == "replace":
        cache.replace("t", history._snapshot("t", None))
    else:
        cache.drop("t")
    assert recount.step(cache, never, recount.next_time) == []
    assert recount.rounds == 1
