"""The suite finds faults of the Redis driver: each broken variant of it fails the check for its fault."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from _redis_server import PrivateRedis

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.driver_state import SubscriberState
from pubsub_redis import subscriber
from pubsub_redis.connection import Command, Link
from pubsub_redis.publisher import RedisPublisher
from pubsub_redis.subscriber import RedisSubscriber
from tests.conformance.test_redis import rig_on
from tests.conformance.trial import AGAIN, ALONE, ANSWERED, EXACT, IDEMPOTENT, SUBSCRIBED, Table, fails, of_any


class ConnectsOnce(Link):
    def _lost(self, half: Any, error: Exception) -> None:
        super()._lost(half, error)
        self._stopped.set()


class SubscribesByPrefix(RedisSubscriber):
    def greeting(self) -> list[Command]:
        patterns: list[Command] = [("PSUBSCRIBE", self._channels.of_topic(topic) + b"*") for topic in self._topics]
        return [*super().greeting(), *patterns]


class DeliversTwice(RedisSubscriber):
    """Does not drop what comes for the channel when it also comes for the pattern."""

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        self._everything = False
        super().message(kind, rest)


class ReceivesAllHelloReplies(RedisSubscriber):
    def greeting(self) -> list[Command]:
        return [*super().greeting(), ("PSUBSCRIBE", self._channels.of_inbox(b"*").replace(b"*:", b"\\*:"))]

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        if kind != b"psubscribe":
            super().message(kind, rest)


class ForgetsItsSubscriptions(RedisSubscriber):
    connections = 0

    def greeting(self) -> list[Command]:
        self.connections += 1
        if self.connections > 1:
            self._topics.clear()
        return super().greeting()


class ReportsAConnectionTooEarly(RedisSubscriber):
    hasty = True  # the check waits before its hello request is sent

    def greeting(self) -> list[Command]:
        self._life.connected()
        return super().greeting()

    def connected(self) -> None:
        pass


class CallsBackAfterItsClose(RedisSubscriber):
    """``close`` ends nothing, and so does not wait for the thread."""

    left: ClassVar[list["CallsBackAfterItsClose"]] = []

    def end(self) -> None:
        """The correct end, after the test: the thread would disturb later tests of this process."""
        super().close()

    def close(self) -> None:
        self.left.append(self)
        if not self._life.inherited:
            before = self._life
            before.close(lambda: None, 0.0)
            after = SubscriberState(self._lock, subscriber._log, ("unsent_requests",))
            after._on_envelope = before._on_envelope
            self._life = after  # complete: a message may arrive at once


class AnswersEverybody(RedisPublisher):
    """Not to the requester alone: the reply goes to all subscribers of the topic."""

    def send_event(self, envelope: Envelope) -> None:
        if envelope.hello is not None and envelope.hello.nonce:
            self._channels.of_inbox = lambda inbox: self._channels.of_topic("tenant-1")  # type: ignore[method-assign]
        super().send_event(envelope)


class AcceptsEveryFrame(RedisSubscriber):
    """With :class:`AnswersEverybody`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._channels.fits = lambda channel, head: True  # type: ignore[method-assign]


BROKEN: Table = {
    **of_any(
        "drops hello requests",
        "ignores hello requests",
        "ignores unregistrations while disconnected",
        "reports the first connection only",
        "publisher reports no connection",
        "needs the server at its start",
        "ends on a bad frame",
        "ends at SystemExit of a callback",
        "drops silently",
        "leaks without a connection",
        "blocks while disconnected",
        "reorders undeclared",
        "sends in a child",
    ),
    "delivers a neighbouring topic": (SubscribesByPrefix, EXACT),
    "delivers twice": (DeliversTwice, IDEMPOTENT),
    "receives all hello replies": (ReceivesAllHelloReplies, ALONE),
    "answers everybody": ((AnswersEverybody, AcceptsEveryFrame), ALONE),
    "connects once": (ConnectsOnce, AGAIN),
    "forgets its subscriptions": (ForgetsItsSubscriptions, SUBSCRIBED),
    "forgets everything": (ForgetsItsSubscriptions, "test_everything_must_be_subscribed_to_again"),
    "reports a connection too early": (ReportsAConnectionTooEarly, ANSWERED),
    "calls back after its close": (
        CallsBackAfterItsClose,
        "test_on_envelope_must_not_be_called_after_close_returned",
    ),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_redis_driver_fails(fault: str, redis_server: PrivateRedis) -> None:
    try:
        with rig_on(redis_server) as rig:
            fails(BROKEN, fault, rig)
    finally:
        while CallsBackAfterItsClose.left:
            CallsBackAfterItsClose.left.pop().end()
