"""Each link is sent once, from a worker or the changelog; links that the driver rejects are counted and not retried."""

from collections.abc import Sequence

from pubsub_lib.core.model import Link
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.errors import TransportError
from pubsub_lib.service.outgoing import Outgoing
from tests.unit.service.links import History


class Sent:
    """A publisher that records links, or raises."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.refuses = False

    def publish(self, links: Sequence[Link]) -> None:
        if self.refuses:
            raise TransportError("the wire is cut")
        self.links += links


def outgoing() -> tuple[Outgoing, Sent]:
    sent = Sent()
    return Outgoing("api-1", UnpublishedLinks("api-1", grace=1.0, keep=60.0), sent), sent


def test_handed_over_link_is_not_sent_again_from_the_changelog() -> None:
    out, sent = outgoing()
    link = History().commit()
    out.handed_over([link])
    out.in_changelog([link], 10.0)
    out.due(20.0, {"api-1"}, True)
    assert sent.links == [link]
    assert out.counters() == {"handed": 1, "repeated": 0, "followed": 0, "took_over": 0, "unsent": 0}


def test_link_from_the_changelog_is_sent_after_the_grace_and_not_again() -> None:
    out, sent = outgoing()
    link = History().commit()
    out.in_changelog([link], 10.0)
    assert out.next_time() == 11.0
    out.due(10.9, {"api-1"}, False)
    assert sent.links == []
    out.due(11.0, {"api-1"}, False)
    out.handed_over([link])
    assert sent.links == [link]
    assert out.counters()["followed"] == out.counters()["repeated"] == 1


def test_orphans_are_sent_only_under_the_lease_and_without_live_service() -> None:
    out, sent = outgoing()
    history = History()
    gone, none, live = history.commit(origin="api-9"), history.commit(origin=""), history.commit(origin="api-2")
    out.in_changelog([gone, none, live], 0.0)
    out.due(5.0, {"api-1", "api-2"}, False)
    assert sent.links == []
    out.due(5.0, {"api-1", "api-2"}, True)
    assert sent.links == [gone, none]
    assert out.counters()["took_over"] == 2


def test_rejected_links_are_counted_as_unsent() -> None:
    out, sent = outgoing()
    history = History()
    sent.refuses = True
    out.handed_over([history.commit(), history.commit()])
    sent.refuses = False
    last = history.commit()
    out.handed_over([last])
    assert sent.links == [last]
    assert out.counters()["unsent"] == 2
