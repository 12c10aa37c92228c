"""Messages from the hop are reassembled and passed on; the driver starts and closes with the service."""

from typing import Any

import pytest

from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.service.receiving import Receiving
from tests.unit.service.links import History


class Hop:
    """A driver's subscriber that the test controls."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.bring: Any = None

    def initialize(self, on_envelope: Any, on_connected: Any) -> None:
        self.bring = on_envelope

    def register_topic(self, topic: str) -> None:
        self.calls.append(topic)

    def daemonize(self) -> None:
        self.calls.append("daemonize")

    def close(self) -> None:
        self.calls.append("close")

    def counters(self) -> dict[str, int]:
        return {"received": 2}


class Taken:
    def __init__(self) -> None:
        self.links: list[list[Link]] = []

    def handed_over(self, links: list[Link]) -> None:
        self.links.append(links)


@pytest.fixture
def hop() -> Hop:
    return Hop()


def test_receiver_passes_on_complete_links(hop: Hop) -> None:
    taken, history = Taken(), History()
    receiving = Receiving(hop, "api-1", taken)  # type: ignore[arg-type]
    receiving.start()
    assert hop.calls == [ALL, "daemonize"]
    links = [history.commit(), history.commit()]
    hop.bring(Envelope("api-1", "0" * 32, "t", 1, [Message(link) for link in links]))
    assert taken.links == [links]
    receiving.close()
    assert hop.calls[-1] == "close"


def test_links_of_another_services_worker_are_sent_and_counted(hop: Hop) -> None:
    taken = Taken()
    receiving = Receiving(hop, "api-1", taken)  # type: ignore[arg-type]
    receiving.start()
    hop.bring(Envelope("api-2", "0" * 32, "t", 3, [Message(History().commit())]))
    hop.bring(Envelope("api-2", "0" * 32, "t", 5, [Message(History().commit())]))
    assert len(taken.links) == 2
    assert receiving.counters() == {"received": 2, "lost": 1, "incomplete": 0, "strangers": 2}
    assert receiving.rejected() == {"incomplete": 0}, "its links were sent"
