"""An answer must contain each topic of the sync."""

from collections.abc import Mapping

import pytest

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.model import ZERO, Full, SyncAnswer, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.replica.sync_reader import interrupt, read_all
from pubsub_lib.sync.question import SyncQuestion


class Reader:
    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        return SyncAnswer(ZERO, {topic: Full({}, ZERO) for topic in self.topics})


def test_answer_with_all_topics_is_returned() -> None:
    job = StartSync(1, {"t": Want(), "u": Want()}, {})
    assert read_all(Reader("t", "u"), job).chains.keys() == {"t", "u"}


def test_answer_without_a_topic_is_an_error_that_names_it() -> None:
    job = StartSync(1, {"t": Want(), "u": Want()}, {})
    with pytest.raises(StoreError, match=r"lacks \['u'\]"):
        read_all(Reader("t"), job)


class Channel:
    def __init__(self, answer: SyncAnswer) -> None:
        self.answer = answer
        self.asked: list[SyncQuestion] = []
        self.closed = False

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        raise AssertionError

    def ask(self, question: SyncQuestion) -> SyncAnswer:
        self.asked.append(question)
        return self.answer

    def close(self) -> None:
        self.closed = True


def test_channel_gets_the_nonce_and_whether_a_relay_must_prove_its_state_again() -> None:
    channel = Channel(SyncAnswer(ZERO, {"t": Full({}, ZERO)}))
    wants = {"t": Want()}
    for refresh in (False, True):
        read_all(channel, StartSync(1, wants, {}, refresh, "nonce"))
    assert channel.asked == [SyncQuestion(wants, nonce="nonce"), SyncQuestion(wants, refresh=True, nonce="nonce")]


def test_relay_may_leave_out_topics_but_the_primary_may_not() -> None:
    job = StartSync(1, {"t": Want(), "u": Want()}, {})
    relayed = SyncAnswer(ZERO, {"t": Full({}, ZERO)}, ages={})
    assert read_all(Channel(relayed), job) is relayed
    with pytest.raises(StoreError, match=r"lacks \['u'\]"):
        read_all(Channel(SyncAnswer(ZERO, {"t": Full({}, ZERO)})), job)


def test_running_sync_of_a_channel_is_interrupted() -> None:
    channel = Channel(SyncAnswer(ZERO, {}))
    interrupt(channel)
    assert channel.closed
    interrupt(Reader("t"))  # has nothing to end
