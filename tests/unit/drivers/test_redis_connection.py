"""The connection of the Redis driver without a server: what it makes of replies, and of errors."""

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from redis import exceptions

from pubsub_redis.connection import Command, Link
from pubsub_redis.options import checked

LOG = logging.getLogger("pubsub_redis.test")
PONG = b"PONG"
REFUSED = exceptions.NoPermissionError("no permissions")


class Half:
    """Notes its calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def own(self) -> Command:
        return ("SUBSCRIBE", b"own")

    def greeting(self) -> list[Command]:
        return []

    def orders(self) -> list[Command]:
        return []

    def connected(self) -> None:
        self.called.append("connected")

    def disconnected(self, reason: str, final: bool) -> None:
        self.called.append("disconnected")

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        self.called.append(kind.decode())

    def refused(self, reason: str) -> None:
        self.called.append(f"refused: {reason}")


class Replies:
    """A connection of the client library on which these replies have arrived."""

    def __init__(self, *replies: Any) -> None:
        self._left = deque(replies)

    def can_read(self, seconds: float) -> bool:
        return bool(self._left)

    def read_response(self, **_: Any) -> Any:
        reply = self._left.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def half() -> Half:
    return Half()


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link(*checked({"url": "redis://host:7000"}), LOG)
    yield made
    os.close(made._waker)


def test_a_refused_topic_does_not_end_the_connection(link: Link, half: Half) -> None:
    subscribed = [b"subscribe", b"own", 1]
    link._receive(Replies(subscribed, PONG, subscribed, REFUSED, subscribed, PONG), half)
    assert half.called[-1] == "connected"
    assert len(half.called) == 5
    assert "refused a command (no permissions)" in half.called[2]
    assert (link.counts["refused"], link.counts["connected"]) == (1, 1)


@pytest.mark.parametrize("replies", [[REFUSED, PONG, PONG], [[b"subscribe", b"own", 1], REFUSED, REFUSED]])
def test_a_connection_whose_own_channels_or_ping_are_refused_ends(link: Link, half: Half, replies: list[Any]) -> None:
    with pytest.raises(exceptions.NoPermissionError):
        link._receive(Replies(*replies), half)
    assert "connected" not in half.called


def test_a_refusal_is_logged_when_its_reason_changes_and_each_one_is_counted(link: Link, half: Half) -> None:
    other = exceptions.ResponseError("OOM")
    link._receive(Replies(PONG, PONG, REFUSED, REFUSED, 1, REFUSED, other, other, REFUSED), half)
    reasons = [each for each in half.called if each.startswith("refused")]
    assert ["OOM" in each for each in reasons] == [False, True, False]
    assert link.counts["refused"] == 6
    link._refused_at -= 61
    link._receive(Replies(REFUSED, REFUSED), half)
    assert len([each for each in half.called if each.startswith("refused")]) == 4, "not logged after a minute without"


def test_a_loss_is_logged_when_its_reason_changes_and_after_a_connection(
    link: Link, half: Half, caplog: pytest.LogCaptureFixture
) -> None:
    gone, silent = exceptions.ConnectionError("gone"), exceptions.TimeoutError("silent")
    for error in (gone, gone, silent, silent, gone):
        link._lost(half, error)
    logged = [record.getMessage() for record in caplog.records]
    assert [("gone" in each, "silent" in each) for each in logged] == [(True, False), (False, True), (True, False)]
    assert half.called == ["disconnected"] * 5, "the half does not learn of every loss"
    link._receive(Replies(PONG, PONG), half)
    link._lost(half, gone)
    assert len(caplog.records) == 4
    assert (link.counts["failed"], link.counts["disconnected"]) == (5, 1)
