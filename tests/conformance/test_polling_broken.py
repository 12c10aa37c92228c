"""The suite finds faults of polling: each broken variant of the polling driver fails the check for its fault."""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import Link
from pubsub_lib.errors import TransportError
from pubsub_lib.store import Store
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_sql import PollingDriver
from pubsub_sql.follower import ChangelogFollower
from pubsub_sql.subscriber import PollingSubscriber
from tests.conformance.broken import ending_at


class LosesSilently(ChangelogFollower):
    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for link in links:
            if link.point.position % 7:
                yield from super()._envelopes([link], topics)


class Reorders(ChangelogFollower):
    """Each second link overtakes the one before it, also when each poll reads one link alone."""

    _overtaken: Link | None = None

    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for link in links:
            if self._overtaken is None:
                self._overtaken = link
            else:
                yield from super()._envelopes([link, self._overtaken], topics)
                self._overtaken = None


class CutsLargeLinks(ChangelogFollower):
    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for envelope in super()._envelopes(links, topics):
            if all(message.part < 3 for message in envelope.messages):
                yield envelope


class DeliversNeighbours(ChangelogFollower):
    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        near = {link.topic for link in links if link.topic.startswith(tuple(topics))}
        return super()._envelopes(links, near)


class NumbersAllTopicsTogether(ChangelogFollower):
    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for envelope in super()._envelopes(links, topics):
            self._sequences[""] += 1
            yield Envelope(envelope.service, envelope.uuid, envelope.topic, self._sequences[""], envelope.messages)


class IgnoresHelloRequests(ChangelogFollower):
    def poll(self, store: Any, topics: Any, asks: Sequence[HelloRequest], clock: Any) -> Iterator[Envelope]:
        return super().poll(store, topics, (), clock)


class NeverUnregisters(PollingSubscriber):
    def unregister_topic(self, topic: str) -> None:
        pass


class EndsAtACallbackError(PollingSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(ending_at(BaseException, self._life, on_envelope), on_connected)


class HangsInClose(PollingSubscriber):
    def close(self) -> None:
        time.sleep(3)
        super().close()


class LeaksForeignException(PollingSubscriber):
    def register_topic(self, topic: str) -> None:
        topic.encode()
        super().register_topic(topic)


BROKEN: dict[str, tuple[type[Any], str]] = {
    "loses silently": (LosesSilently, "test_send_event_must_not_lose_an_envelope_silently"),
    "reorders": (Reorders, "test_send_event_must_keep_the_order_of_a_topic"),
    "cuts large links": (CutsLargeLinks, "test_send_event_must_carry_a_large_link_whole"),
    "delivers a neighbouring topic": (DeliversNeighbours, "test_register_topic_must_be_exact"),
    "numbers all topics together": (
        NumbersAllTopicsTogether,
        "test_envelopes_must_be_numbered_per_publisher_and_topic",
    ),
    "ignores hello requests": (IgnoresHelloRequests, "test_request_hello_must_be_answered_to_the_asker_alone"),
    "never unregisters": (NeverUnregisters, "test_unregister_topic_must_stop_the_topic_alone_and_be_idempotent"),
    "ends at a callback error": (
        EndsAtACallbackError,
        "test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread",
    ),
    "hangs in close": (HangsInClose, "test_close_must_be_idempotent_quick_and_safe_from_any_thread"),
    "leaks a foreign exception": (LeaksForeignException, "test_register_topic_must_raise_no_foreign_exception"),
}


def driver_of(broken: type[Any]) -> type[PollingDriver]:
    class Broken(PollingDriver):
        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            made = super().subscriber(settings)
            assert isinstance(made, PollingSubscriber)
            if issubclass(broken, ChangelogFollower):
                made._follower = broken(settings.limits, 500)
            else:
                made.__class__ = broken
            return made

    return Broken


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url) as store:
        yield store


def rig_of(broken: type[Any], url: str, store: Store, patience: float = 30.0) -> Rig:
    def write(topic: str, values: Mapping[str, str]) -> Link:
        with store.transaction() as tx:
            for key, value in values.items():
                tx.set("conformance", f"{topic}/{key}", json.loads(value), topic=topic)
        assert tx.commit is not None
        return tx.commit.links[0]

    settings = DriverSettings(store_url=url, options={"fastest": 0.002, "slowest": 0.02})
    return Rig(driver_of(broken), settings, write=write, patience=patience)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_polling_driver_fails(fault: str, sqlite_url: str, store: Store) -> None:
    broken, check = BROKEN[fault]
    with pytest.raises((AssertionError, TransportError, pytest.fail.Exception)):
        getattr(DriverConformance(), check)(rig_of(broken, sqlite_url, store, patience=1.0))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("check", sorted({check for _, check in BROKEN.values()}))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str, sqlite_url: str, store: Store) -> None:
    getattr(DriverConformance(), check)(rig_of(PollingSubscriber, sqlite_url, store))
