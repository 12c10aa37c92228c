"""The suite finds faults of polling: each broken variant of the polling driver fails the check for its fault."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import Link
from pubsub_sql.follower import ChangelogFollower
from tests.conformance.test_polling import rig_in
from tests.conformance.trial import ALONE, EXACT, SILENT, Table, checks, fails, of_any, passes


class LosesSilently(ChangelogFollower):
    hasty = True

    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for link in links:
            if link.point.position % 7:
                yield from super()._envelopes([link], topics)


class Reorders(ChangelogFollower):
    """Each second link overtakes the one before it, also when each poll reads one link alone."""

    hasty = True
    _overtaken: Link | None = None

    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for link in links:
            if self._overtaken is None:
                self._overtaken = link
            else:
                yield from super()._envelopes([link, self._overtaken], topics)
                self._overtaken = None


class CutsLargeLinks(ChangelogFollower):
    hasty = True

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


BROKEN: Table = {
    **of_any("never unregisters", "ends at a callback's error", "hangs in close", "leaks a foreign exception"),
    **of_any("never registers again", "unregisters the topics with everything", "counts nothing received"),
    "loses silently": (LosesSilently, SILENT),
    "reorders": (Reorders, "test_send_event_must_keep_the_order_of_a_topic"),
    "cuts large links": (CutsLargeLinks, "test_send_event_must_carry_a_large_link_whole"),
    "delivers a neighbouring topic": (DeliversNeighbours, EXACT),
    "numbers all topics together": (
        NumbersAllTopicsTogether,
        "test_envelopes_must_be_numbered_per_publisher_and_topic",
    ),
    "ignores hello requests": (IgnoresHelloRequests, ALONE),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_polling_driver_fails(fault: str, tmp_path: Path) -> None:
    with rig_in(tmp_path) as rig:
        fails(BROKEN, fault, rig)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("check", checks(BROKEN))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str, tmp_path: Path) -> None:
    with rig_in(tmp_path) as rig:
        passes(rig, check)
