"""An answer must contain each topic of the sync."""

from collections.abc import Mapping

import pytest

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.model import ZERO, Full, SyncAnswer, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.replica.sync_reader import read_all


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
