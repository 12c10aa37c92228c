"""The size of subscriptions with keys: equal ones count once, and misuse by one client ends others seldom."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pubsub_zmq.keyed_budget import KEYED_TABLE, LONGEST_PAUSE, KeyedBudget
from pubsub_zmq.subscription_budget import PAUSE
from tests.unit.drivers.zmq.test_subscription_budget import Frame


def budget(maximum: int = 100 + KEYED_TABLE) -> KeyedBudget:
    return KeyedBudget("tcp://127.0.0.1:1", maximum)


def subscribe(made: KeyedBudget, descriptor: int | None, *prefixes: bytes) -> None:
    for each in prefixes:
        made.report(Frame(descriptor), each, subscribed=True)  # type: ignore[arg-type]


def end(made: KeyedBudget, descriptor: int | None, *prefixes: bytes) -> None:
    for each in prefixes:
        made.report(Frame(descriptor), each, subscribed=False)  # type: ignore[arg-type]


def test_equal_subscriptions_count_once() -> None:
    made = budget()
    for descriptor in range(50):
        subscribe(made, descriptor, b"topic-1", b"topic-2")
    assert made.total == 14 + 2 * KEYED_TABLE
    for _ in range(49):
        end(made, None, b"topic-1", b"topic-2")
    assert made.total == 14 + 2 * KEYED_TABLE
    end(made, None, b"topic-1")
    assert made.total == 7 + KEYED_TABLE


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"a", b"bb", b"ccc"]), st.booleans()), max_size=60))
def test_total_is_that_of_the_different_subscriptions(steps: list[tuple[int, bytes, bool]]) -> None:
    """Against a model, for clients that neither repeat a subscription nor end one that they do not have."""
    made = budget()
    had: set[tuple[int, bytes]] = set()
    for descriptor, prefix, subscribed in steps:
        if ((descriptor, prefix) in had) == subscribed:
            continue
        (subscribe if subscribed else end)(made, descriptor, prefix)
        (had.add if subscribed else had.discard)((descriptor, prefix))
        assert made.total == sum(len(each) + KEYED_TABLE for each in {each for _, each in had})


def test_end_of_what_a_connection_did_not_begin_is_ignored() -> None:
    made = budget()
    subscribe(made, 1, b"x" * 60)
    end(made, 2, b"x" * 60, b"y" * 60)
    assert made.total == 60 + KEYED_TABLE
    end(made, None, b"y" * 60)
    assert made.total == 60 + KEYED_TABLE


def test_largest_connection_is_ended_although_another_one_subscribed_first() -> None:
    made = budget()
    subscribe(made, 1, b"x" * 20)
    subscribe(made, 2, b"x" * 20, b"y" * 90)
    assert made.excess(made.total, 0.0) == [2]


def test_no_connection_is_ended_for_what_one_that_left_repeated() -> None:
    made = budget()
    subscribe(made, 1, b"x" * 200, b"x" * 200)
    subscribe(made, 2, b"topic")
    made.disconnected(1)
    end(made, None, b"x" * 200)
    assert made.total == 205 + 2 * KEYED_TABLE
    assert made.excess(made.total, 0.0) == []
    assert not made.is_wrong(0.0)
    assert made.is_wrong(PAUSE)
    made.renewed()
    assert made.total == 0
    assert not made.is_wrong(2 * PAUSE)


def test_total_that_falls_by_itself_needs_no_correction() -> None:
    made = budget()
    subscribe(made, 1, b"x" * 200)
    assert not made.is_wrong(0.0)
    end(made, None, b"x" * 200)
    assert not made.is_wrong(5.0)
    subscribe(made, 2, b"y" * 200)
    assert not made.is_wrong(6.0)


def test_corrections_have_growing_pauses() -> None:
    made = budget()
    times = []
    now = 0.0
    while now < 400:
        subscribe(made, 1, b"x" * 200)
        if made.is_wrong(now):
            times.append(now)
            made.renewed()
        now += PAUSE / 4
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= PAUSE
    assert pauses[-1] == LONGEST_PAUSE
    assert len(times) < 15


def test_pause_is_short_again_after_a_quiet_time() -> None:
    made = budget()
    subscribe(made, 1, b"x" * 200)
    now = 0.0
    for _ in range(400):
        made.is_wrong(now)
        now += PAUSE
    now += 10 * LONGEST_PAUSE
    assert made.is_wrong(now)
    assert not made.is_wrong(now + PAUSE / 2)
    assert made.is_wrong(now + PAUSE)


def test_publisher_asks_again_while_the_total_is_too_large() -> None:
    made = budget()
    assert made.wait is None
    subscribe(made, 1, b"x" * 200)
    assert made.wait == 1000
