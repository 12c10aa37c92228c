"""The differences that the consistency check finds."""

import random
from collections.abc import Mapping

import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.digest import fingerprint
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Full, Head, Point, Record, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.replica.consistency_check import differences, found_differences, read_whole

POINT = Point(2, 99)
ONE = Record("a", "1", 1, b"1")
TWO = Record("a", "2", 2, b"2")


def full(*records: Record) -> Full:
    digest = sum(fingerprint(r.table, r.key, r.version, r.value) for r in records) % 2**64
    return Full({"t": TopicSnapshot(Head(POINT, len(records), digest), records)}, POINT)


def cache(*records: Record) -> Cache:
    made = Cache()
    made.replace("t", full(*records).topics["t"])
    return made


def test_equal_contents_have_no_differences() -> None:
    assert differences(cache(ONE, TWO), "t", full(ONE, TWO)) == []


@pytest.mark.parametrize(
    ("here", "there", "sentence"),
    [
        ([ONE], [ONE, TWO], "a '2' of topic 't' is missing"),
        ([ONE, TWO], [ONE], "a '2' of topic 't' does not exist in the store"),
        ([ONE], [Record("a", "1", 2, b"1")], "a '1' of topic 't' has version 1 instead of 2"),
        ([ONE], [Record("a", "1", 1, b"7")], "a '1' of topic 't' has another value in version 1"),
    ],
)
def test_each_difference_is_one_sentence(here: list[Record], there: list[Record], sentence: str) -> None:
    assert differences(cache(*here), "t", full(*there)) == [sentence]


def test_a_topic_that_the_store_does_not_have_is_a_difference() -> None:
    assert differences(cache(ONE), ALL, Full({}, POINT)) == ["topic 't' is in the replica but not in the store"]


def test_only_chains_at_the_point_of_the_answer_are_compared() -> None:
    state = ReplicaState(Timing(sync_jitter=0.0), Limits(), random.Random(1), Cache(), 0.0)
    state.subscribe(["t"], 0.0)
    answer = SyncAnswer(POINT, {"t": full(ONE, TWO)})
    assert found_differences(state, answer) == [], "the replica has not read the topic yet"
    sync = state.tick(Timing().hello_wait).sync
    assert sync is not None
    state.sync_done(sync.number, SyncAnswer(POINT, {"t": full(ONE)}), Timing().hello_wait)
    assert found_differences(state, answer) == ["a '2' of topic 't' is missing"]
    assert found_differences(state, SyncAnswer(POINT, {"t": full(ONE), "u": full(TWO)})) == []
    state.resync(["t"], Timing().hello_wait)
    assert found_differences(state, answer) == [], "the topic is being read again"


def test_store_that_cannot_be_read_is_not_compared() -> None:
    class Reader:
        """A store that answers once."""

        wants: Mapping[str, Want] | None = None

        def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
            if self.wants is not None:
                raise StoreUnavailable("out of reach")
            self.wants = wants
            return SyncAnswer(POINT, {"t": full(ONE)})

    reader = Reader()
    assert read_whole(reader, ("t",)) is not None
    assert reader.wants == {"t": Want()}
    assert read_whole(reader, ("t",)) is None
