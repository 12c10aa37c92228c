"""The queue of hello requests: its rate limit, its size limit, and its end."""

import threading

from _processes import poll
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import FrameError
from pubsub_lib.hello_requests import MAX_WAITING, MAX_WAITING_BYTES, Event, HelloRequests, Pace


@given(st.integers(1, 50), st.lists(st.floats(0, 0.5), max_size=200))
def test_pace_is_never_exceeded_in_any_time_span(per_second: int, pauses: list[float]) -> None:
    pace = Pace(per_second)
    now = 100.0
    done: list[float] = []
    for pause in pauses:
        now += pause
        left = pace.wait(now)
        if left:
            now += left * 1.000001
            left = pace.wait(now)
        assert not left, "the action is allowed after the returned wait"
        done.append(now)
    for first, began in enumerate(done):
        for last in range(first, len(done)):
            assert last - first + 1 <= per_second + (done[last] - began) * per_second + 1e-6


def test_pace_allows_one_seconds_actions_at_once_after_a_pause() -> None:
    pace = Pace(4)
    assert [pace.wait(7.0) for _ in range(5)] == [0, 0, 0, 0, 0.25]
    assert [pace.wait(1000.0) for _ in range(5)] == [0, 0, 0, 0, 0.25]


def test_requests_beyond_the_queue_limit_are_counted_and_order_is_kept() -> None:
    asks = HelloRequests(Limits(), 10)
    assert asks.put([b"%d" % number for number in range(MAX_WAITING + 3)]) == 3
    assert asks.put([b"more"]) == 1
    assert [asks.take() for _ in range(3)] == [b"0", b"1", b"2"]


def test_requests_beyond_the_byte_limit_are_counted_and_dropped() -> None:
    asks = HelloRequests(Limits())
    large = b"l" * (MAX_WAITING_BYTES // 2)
    assert asks.put([large, b"small", large, b"s"]) == 1
    assert [asks.take() for _ in range(2)] == [large, b"small"]
    assert asks.put([large, large]) == 1, "a request that was taken takes no room"
    assert asks.take() == b"s"


def test_connections_are_taken_at_once_as_one_item_at_any_request_rate() -> None:
    asks = HelloRequests(Limits(), 1)
    asks.put([b"first", b"second"])
    assert asks.take() == b"first"  # no further request for a second
    asks.connected()
    asks.connected()
    assert [asks.take(), asks.take()] == [Event.CONNECTED, b"second"]


def test_empty_request_is_foreign_and_no_connection() -> None:
    asks = HelloRequests(Limits())
    asks.put([b""])
    asks.refuse(FrameError("its inbox cannot be read", "foreign"))
    connected: list[str] = []
    thread = threading.Thread(target=asks.answer, args=(None, lambda: connected.append("yes")))
    thread.start()
    assert poll(lambda: asks.counters()["foreign"] == 2, 10)
    asks.close()
    thread.join(10)
    assert connected == []
    assert asks.counters() == {**asks.counts, "foreign": 2}
    assert asks.counts["foreign"] == 1


def test_close_ends_every_wait() -> None:
    for waiting in ([], [b"first", b"second"]):
        asks = HelloRequests(Limits(), 1)
        asks.put(waiting)
        for each in waiting[:1]:
            assert asks.take() == each
        taken: list[bytes | Event | None] = []
        thread = threading.Thread(target=lambda asks=asks, taken=taken: taken.append(asks.take()))
        thread.start()
        asks.close()
        thread.join(10)
        assert taken == [None]


def test_requests_after_close_are_dropped() -> None:
    asks = HelloRequests(Limits())
    asks.close()
    assert asks.put([b"late"], 1) == 0
    assert not asks._waiting


def test_each_peer_in_turn_has_its_oldest_request_answered() -> None:
    asks = HelloRequests(Limits())
    asks.put([b"a1", b"a2", b"a3"], 1)
    asks.put([b"b1"], 2)
    asks.put([b"c1", b"c2"], 3)
    asks.put([b"b2"], 2)
    assert [asks.take() for _ in range(7)] == [b"a1", b"b1", b"c1", b"a2", b"b2", b"c2", b"a3"]
    asks.put([b"again"], 1)
    assert asks.take() == b"again"


def test_one_peer_fills_half_of_the_queue_and_two_leave_a_third() -> None:
    asks = HelloRequests(Limits())
    flood = [b"%d" % number for number in range(MAX_WAITING)]
    assert asks.put(flood, 1) == MAX_WAITING // 2
    assert asks.put(flood[: MAX_WAITING // 4], 2) == 0, "another peer has room"
    assert asks.put(flood[:10], 1) == 10, "the first one has more than is left"
    assert asks.put([b"x"], 3) == 0
    assert [asks.take() for _ in range(3)] == [b"0", b"0", b"x"], "each other peer waits for one request of the first"


def test_a_peer_has_room_again_when_its_requests_were_taken() -> None:
    asks = HelloRequests(Limits())
    assert asks.put([b"n"] * MAX_WAITING, 1) == MAX_WAITING // 2
    for _ in range(10):
        asks.take()
    assert asks.put([b"n"] * 20, 1) == 10
