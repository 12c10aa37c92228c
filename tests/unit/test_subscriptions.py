"""The prefixes of a subscriber, compared with the topics of messages."""

import pytest

from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.subscriptions import Subscriptions


def test_topics_match_exactly() -> None:
    subscriptions = Subscriptions()
    prefix = subscriptions.add("tenant-1")
    assert prefix in subscriptions.prefixes()
    assert subscriptions.matches(codec.topic_frame("tenant-1"))
    for near in ("tenant-10", "tenant-", "xtenant-1"):
        assert not subscriptions.matches(codec.topic_frame(near))
    assert subscriptions.discard("tenant-1") == prefix
    assert not subscriptions.matches(codec.topic_frame("tenant-1"))


def test_hellos_to_all_always_match_and_all_topics_match_everything() -> None:
    subscriptions = Subscriptions()
    assert subscriptions.matches(codec.topic_frame(ALL))
    assert not subscriptions.matches(codec.topic_frame("t"))
    subscriptions.add(ALL)
    assert subscriptions.matches(codec.topic_frame("t"))


def test_replies_match_their_nonce_until_there_are_too_many_requests() -> None:
    subscriptions = Subscriptions(2)
    ended = [subscriptions.add_replies(nonce)[1] for nonce in ("n1", "n2", "n2", "n3")]
    assert ended == [None, None, None, codec.private_frame("n1")]
    matched = [nonce for nonce in ("n1", "n2", "n3", "n4") if subscriptions.matches(codec.private_frame(nonce))]
    assert matched == ["n2", "n3"]


def test_invalid_topic_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        Subscriptions().add("a\0b")
