"""Pauses between readings of buckets because of links that had waited."""

from pubsub_lib.core.mismatches import FORGET, LinkPauses
from pubsub_lib.core.sync_scheduler import backoff
from tests.unit.core.builders import CALM


def test_dropped_topic_leaves_no_pause() -> None:
    pauses = LinkPauses(CALM)
    for _ in range(2):
        pauses.may_read("t", 0.0)
    pauses.forget("t")
    assert pauses.due(1000.0) == []
    assert pauses.may_read("t", 0.0)


def test_pauses_of_a_chain_double_and_end() -> None:
    pauses = LinkPauses(CALM)
    assert pauses.may_read("t", 0.0)
    assert pauses.due(1000.0) == []
    now, lengths = 0.0, []
    for _ in range(12):
        assert not pauses.may_read("t", now)
        assert not pauses.may_read("t", now + 0.01)
        lengths.append(pauses.ends["t"] - now)
        now = pauses.ends["t"]
        assert pauses.due(now) == ["t"]
    assert lengths == [backoff(CALM, number) for number in range(12)]
    assert pauses.may_read("t", now + FORGET)
    assert pauses.ends == {}
    assert not pauses.may_read("t", now + FORGET)
    pauses.read("t")
    assert pauses.due(now + FORGET + 1000.0) == []
