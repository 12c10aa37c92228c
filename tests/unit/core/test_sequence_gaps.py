"""Rule 11: sequences only show lost messages; no decision depends on them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import sequence_gaps as module
from pubsub_lib.core.model import ALL
from pubsub_lib.core.sequence_gaps import MAX_JUMP, MAX_MISSING, MAX_STREAMS_OF_A_SERVICE, SequenceGaps, Tally
from tests.unit.core.builders import Bench, History, envelope


def receive(
    *numbers: int, gaps: SequenceGaps | None = None, topic: str = "t", uuid: str = "u1"
) -> SequenceGaps:
    gaps = gaps or SequenceGaps()
    for number in numbers:
        gaps.received("api-1", uuid, topic, number, 1)
    return gaps


def test_rule_11_stream_without_gaps_counts_nothing() -> None:
    assert receive(1, 2, 3, 4).tally == Tally()


def test_rule_11_first_sequence_of_a_late_subscriber_is_no_gap() -> None:
    assert receive(77, 78).tally == Tally()


def test_rule_11_lost_message_counts_as_one_hole() -> None:
    assert receive(1, 3).tally == Tally(holes=1)


def test_rule_11_reordered_message_counts_as_filled() -> None:
    assert receive(1, 4, 2, 3, 5).tally == Tally(holes=2, filled=2)


def test_rule_11_repeated_message_is_counted() -> None:
    assert receive(1, 2, 2, 1).tally == Tally(duplicates=2)


def test_rule_11_hello_shows_a_loss_at_the_end() -> None:
    gaps = receive(1, 2)
    gaps.announced("api-1", "u1", "t", 5)
    gaps.announced("api-1", "u1", "t", 5)
    assert gaps.tally == Tally(holes=3)
    receive(4, gaps=gaps)
    assert gaps.tally == Tally(holes=3, filled=1)


def test_rule_11_hello_before_the_first_message_shows_its_loss() -> None:
    gaps = SequenceGaps()
    gaps.announced("api-1", "u1", "t", 0)
    assert receive(2, gaps=gaps).tally == Tally(holes=1)


def test_rule_11_streams_are_per_topic_without_false_gaps() -> None:
    gaps = receive(1, 2, topic="a")
    assert receive(1, 2, topic="b", gaps=gaps).tally == Tally()


def test_rule_11_restarted_publisher_begins_new_streams() -> None:
    gaps = receive(8, 9, uuid="u1")
    assert receive(1, 2, uuid="u2", gaps=gaps).tally == Tally(restarts=1)
    assert receive(10, uuid="u1", gaps=gaps).tally == Tally(restarts=1), "late messages of the old UUID are recognised"


def test_rule_11_wrong_sequence_is_one_jump_and_the_stream_goes_on() -> None:
    gaps = receive(1, 2, 2**62, 3, 5)
    assert gaps.tally == Tally(jumps=1, holes=1)
    assert receive(4, gaps=gaps).tally == Tally(jumps=1, holes=1, filled=1)


def test_rule_11_stream_goes_on_after_a_jump_that_the_next_message_confirms() -> None:
    far = 3 * MAX_JUMP
    assert receive(1, 2, far, far + 1, far + 3).tally == Tally(jumps=1, holes=1)


@pytest.mark.parametrize("wrong", [[2**62], [2**62, 2**62 + 1]])
def test_rule_11_stream_that_begins_with_wrong_sequences_is_counted_again(wrong: list[int]) -> None:
    assert receive(*wrong, 7, 8, 10).tally == Tally(jumps=1, holes=1)


def test_rule_11_second_wrong_sequence_long_after_the_first_moves_nothing() -> None:
    assert receive(1, 2**62, 2, 3, 2**62 + 1, 4, 6).tally == Tally(jumps=2, holes=1)


def test_rule_11_hello_with_a_wrong_sequence_is_one_jump() -> None:
    gaps = receive(1, 2)
    gaps.announced("api-1", "u1", "t", 2**62)
    gaps.announced("api-1", "u1", "t", 4)
    assert gaps.tally == Tally(jumps=1, holes=2)


def test_rule_11_two_hellos_confirm_a_jump() -> None:
    gaps = receive(1, 2)
    for last in (2 * MAX_JUMP, 2 * MAX_JUMP + 5, 2 * MAX_JUMP + 6):
        gaps.announced("api-1", "u1", "t", last)
    assert gaps.tally == Tally(jumps=1, holes=1)


def test_rule_11_topic_followed_again_has_no_gap() -> None:
    gaps = receive(1, 2)
    gaps.forget_topic("t")
    assert receive(50, gaps=gaps).tally == Tally()


def test_rule_11_everything_followed_again_has_no_gap() -> None:
    gaps = receive(1, 2)
    receive(1, topic="u", gaps=gaps)
    gaps.forget_topic(ALL)
    receive(50, gaps=gaps)
    receive(50, 52, topic="u", gaps=gaps)
    assert gaps.tally == Tally(holes=1)


def test_rule_11_late_message_of_a_dropped_topic_makes_no_gap_later() -> None:
    history = History()
    bench = Bench(history, ("t", "u")).synced()
    tracker = bench.tracker
    tracker.feed(envelope(history.one("u"), sequence=1), bench.now)
    tracker.unsubscribe("u")
    tracker.feed(envelope(history.one("u"), sequence=2), bench.now)
    tracker.subscribe(["u"], bench.now)
    tracker.feed(envelope(history.one("u"), sequence=9), bench.now)
    assert tracker.gaps.tally == Tally()


def test_rule_11_sequences_do_not_affect_the_tracker() -> None:
    history = History()
    bench = Bench(history).synced()
    links = history.some(4)
    for link, sequence in zip(links, (7, 3, 3, 900), strict=True):
        bench.do(bench.tracker.feed(envelope(link, sequence=sequence), bench.now))
    assert bench.applied == links


def test_envelope_of_several_messages_covers_their_sequences() -> None:
    gaps = receive(1)
    gaps.received("api-1", "u1", "t", 2, 10)
    assert receive(12, gaps=gaps).tally == Tally()
    gaps.received("api-1", "u1", "t", 11, 4)
    assert gaps.tally == Tally(duplicates=2)
    assert receive(15, gaps=gaps).tally == Tally(duplicates=2)


def test_memory_is_bounded_for_any_announced_sequence() -> None:
    gaps = receive(1, 2**60)
    gaps.announced("api-1", "u1", "t", 2**62)
    for number in range(50):
        receive(1, uuid=f"u{number}", gaps=gaps)
    streams = gaps._streams
    assert len(streams) == MAX_STREAMS_OF_A_SERVICE
    assert all(len(stream.missing) <= MAX_MISSING for topics in streams.values() for stream in topics.values())


def test_number_of_services_is_bounded_and_the_active_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UUIDS", 20)
    gaps = SequenceGaps()
    for number in range(500):
        gaps.received(f"s{number}", f"u{number}", "t", 1, 1)
        gaps.received("api-1", "mine", "t", number + 1, 1)
    assert len(gaps._streams) == len(gaps._services) == len(gaps._uuids) == 20
    assert gaps.tally == Tally()
    gaps.received("api-1", "mine", "t", 502, 1)
    assert gaps.tally == Tally(holes=1)
    gaps.received("s0", "u0", "t", 90, 1)
    assert gaps.tally == Tally(holes=1), "a forgotten UUID begins a new stream"


def test_streams_and_missing_sequences_are_bounded_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 30)
    monkeypatch.setattr(module, "MAX_MISSING_IN_ALL", 100)
    gaps = SequenceGaps()
    rng = random.Random(1)
    for number in range(2000):
        uuid, topic = rng.choice("abc"), f"t{rng.randrange(25) if number < 1000 else number}"
        gaps.received(uuid, uuid, topic, rng.randrange(1, 200), 1)
        if rng.random() < 0.1:
            gaps.forget_topic(topic)
        streams = [stream for topics in gaps._streams.values() for stream in topics.values()]
        assert len(streams) == gaps._count <= 30
        assert sum(len(stream.missing) for stream in streams) == gaps._missing <= 100
    gaps = SequenceGaps()
    for number in range(100):
        gaps.received("a", "a", f"t{number}", 1, 1)
    assert list(gaps._streams["a"]) == [f"t{number}" for number in range(70, 100)]


@given(st.integers(2, 60), st.integers(0, 2**32), st.floats(0, 0.5))
def test_rule_11_holes_less_filled_equals_lost_messages(number: int, seed: int, loss: float) -> None:
    rng = random.Random(seed)
    lost = {each for each in range(2, number) if rng.random() < loss}
    order = [each for each in range(2, number) if each not in lost]
    rng.shuffle(order)
    gaps = receive(1, *order)
    gaps.announced("api-1", "u1", "t", max(1, number - 1))
    tally = gaps.tally
    assert tally.holes - tally.filled == len(lost)
    assert tally.duplicates == 0
