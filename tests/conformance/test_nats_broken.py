"""The suite finds faults of the NATS driver: each broken variant of it fails the check for its fault."""

import asyncio
from typing import Any

import pytest
from _broker import NatsServer

from pubsub_lib.core.model import ALL
from pubsub_nats.client import NatsClient
from pubsub_nats.connection import Connection
from pubsub_nats.publisher import NatsPublisher
from pubsub_nats.subscriber import NatsSubscriber
from tests.conformance.test_nats import rig_of
from tests.conformance.trial import (
    AGAIN,
    ALONE,
    ANSWERED,
    EXACT,
    IDEMPOTENT,
    SUBSCRIBED,
    Table,
    checks,
    fails,
    of_any,
    passes,
)


def only_once(connection: Connection) -> None:
    """Make the half end when its connection is lost."""
    real = connection._one_of

    async def one_of(servers: list[tuple[str, str]]) -> None:
        await real(servers)
        if connection.counts["connected"]:
            connection._stop(0.0)

    connection._one_of = one_of  # type: ignore[method-assign]


class NeverConnectsAgain(NatsSubscriber):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        only_once(self._connection)


class PublisherNeverConnectsAgain(NatsPublisher):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        only_once(self._connection)


class ForgetsItsSubscriptions(NatsSubscriber):
    async def _open(self, client: NatsClient) -> None:
        if self._connection.counts["connected"]:
            self._topics.clear()
        await super()._open(client)


class ReportsAConnectionTooEarly(NatsSubscriber):
    hasty = True  # the check waits before its hello request is sent

    async def _open(self, client: NatsClient) -> None:
        NatsSubscriber._mark(self)
        await asyncio.sleep(0.2)
        await super()._open(client)

    def _mark(self) -> None:
        pass


class DeliversEveryTopic(NatsSubscriber):
    async def _subscribe(self, client: NatsClient) -> None:
        if not self._subscribed:
            self._subscribed[ALL] = await client.subscribe(self._subjects.pattern(ALL))


class SubscribesToOneTopicTwice(NatsSubscriber):
    async def _subscribe(self, client: NatsClient) -> None:
        for topic in self._topics - self._subscribed.keys():
            self._subscribed[topic] = await client.subscribe(self._subjects.pattern(topic))


class ReceivesAllHelloReplies(NatsSubscriber):
    async def _open(self, client: NatsClient) -> None:
        await super()._open(client)
        await client.subscribe(self._subjects.inbox(">"))


BROKEN: Table = {
    **of_any(
        "forgets registrations while disconnected",
        "reports the first connection only",
        "publisher reports the first connection only",
        "drops silently",
        "ends on a bad frame",
        "leaks a foreign exception",
        "reorders undeclared",
        "sends in a child",
        "leaks without a connection",
        "blocks while disconnected",
        "closes with its connection",
        "ignores hello requests",
    ),
    "never connects again": (NeverConnectsAgain, AGAIN),
    "publisher never connects again": (PublisherNeverConnectsAgain, AGAIN),
    "forgets its subscriptions": (ForgetsItsSubscriptions, SUBSCRIBED),
    "reports a connection too early": (ReportsAConnectionTooEarly, ANSWERED),
    "delivers every topic": (DeliversEveryTopic, EXACT),
    "subscribes to one topic twice": (SubscribesToOneTopicTwice, IDEMPOTENT),
    "receives all hello replies": (ReceivesAllHelloReplies, ALONE),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_nats_driver_fails(fault: str, nats_server: NatsServer) -> None:
    with rig_of(nats_server) as rig:
        fails(BROKEN, fault, rig)


@pytest.mark.parametrize("check", checks(BROKEN))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str, nats_server: NatsServer) -> None:
    with rig_of(nats_server) as rig:
        passes(rig, check)
