"""Each link goes out once, whoever brings it first; what the driver refuses is counted and not tried again."""

from collections.abc import Sequence

from pubsub_lib.core.model import Link
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.errors import TransportError
from pubsub_lib.service.outgoing import Outgoing
from tests.unit.service.links import History


class Sent:
    """A publisher that remembers, or refuses."""

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


def test_a_link_that_a_worker_handed_over_is_not_sent_again_when_the_changelog_shows_it() -> None:
    out, sent = outgoing()
    link = History().commit()
    out.handed_over([link])
    out.in_changelog([link], 10.0)
    out.due(20.0, {"api-1"}, True)
    assert sent.links == [link]
    assert out.counters() == {"handed": 1, "repeated": 0, "followed": 0, "took_over": 0, "unsent": 0}


def test_what_nobody_hands_over_is_sent_after_the_grace_and_then_a_late_worker_s_is_not() -> None:
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


def test_orphans_go_out_only_under_the_lease_and_those_of_live_services_never() -> None:
    out, sent = outgoing()
    history = History()
    gone, none, live = history.commit(origin="api-9"), history.commit(origin=""), history.commit(origin="api-2")
    out.in_changelog([gone, none, live], 0.0)
    out.due(5.0, {"api-1", "api-2"}, False)
    assert sent.links == []
    out.due(5.0, {"api-1", "api-2"}, True)
    assert sent.links == [gone, none]
    assert out.counters()["took_over"] == 2


def test_what_the_driver_refuses_is_counted_and_the_service_goes_on() -> None:
    out, sent = outgoing()
    history = History()
    sent.refuses = True
    out.handed_over([history.commit(), history.commit()])
    sent.refuses = False
    last = history.commit()
    out.handed_over([last])
    assert sent.links == [last]
    assert out.counters()["unsent"] == 2
