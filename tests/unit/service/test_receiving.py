"""Messages from the hop are reassembled and passed on; the driver starts and closes with the service."""

from typing import Any

import pytest

from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import ALL, NO_STORE, Link
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
        self.workers: list[tuple[str, str] | None] = []

    def handed_over(self, links: list[Link], worker: tuple[str, str] | None = None) -> None:
        self.links.append(links)
        self.workers.append(worker)


@pytest.fixture
def hop() -> Hop:
    return Hop()


def test_receiver_passes_on_complete_links(hop: Hop) -> None:
    taken, history = Taken(), History()
    receiving = Receiving(hop, "api-1", taken, lambda: NO_STORE)  # type: ignore[arg-type]
    receiving.start()
    assert hop.calls == [ALL, "daemonize"]
    links = [history.commit(), history.commit()]
    hop.bring(Envelope("api-1", "0" * 32, "t", 1, [Message(link) for link in links]))
    assert taken.links == [links]
    assert taken.workers == [("api-1", "0" * 32)]
    receiving.close()
    assert hop.calls[-1] == "close"


def test_links_of_another_services_worker_are_sent_and_counted(hop: Hop) -> None:
    taken = Taken()
    receiving = Receiving(hop, "api-1", taken, lambda: NO_STORE)  # type: ignore[arg-type]
    receiving.start()
    hop.bring(Envelope("api-2", "0" * 32, "t", 3, [Message(History().commit())]))
    hop.bring(Envelope("api-2", "0" * 32, "t", 5, [Message(History().commit())]))
    assert len(taken.links) == 2
    assert receiving.counters() == {"received": 2, "lost": 1, "incomplete": 0, "strangers": 2, "foreign_store": 0}
    assert receiving.rejected() == {"incomplete": 0}, "its links were sent"


def test_rule_15_links_of_another_store_are_dropped_counted_and_named_once(
    hop: Hop, caplog: pytest.LogCaptureFixture
) -> None:
    own, other, taken = bytes(16), b"\x01" * 16, Taken()
    ids = [own]
    receiving = Receiving(hop, "api-1", taken, lambda: ids[-1])  # type: ignore[arg-type]
    receiving.start()

    def bring(sequence: int, store_id: bytes, uuid: str = "0" * 32) -> None:
        messages = [Message(History().commit()), Message(History().commit())]
        hop.bring(Envelope("staging", uuid, "t", sequence, messages, None, store_id))

    for sequence in (1, 3, 5):
        bring(sequence, other)
    bring(1, NO_STORE)
    assert taken.links == []
    counters = receiving.counters()
    assert (counters["foreign_store"], counters["lost"], counters["strangers"]) == (8, 0, 0)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "'staging' with the UUID " + "0" * 32 in lines[0]
    assert f"(id {other.hex()}, the store of this service has {own.hex()})" in lines[0]
    assert "publisher_multiproc_socket" in lines[0]
    assert "pubsub-db new-id" in lines[0]
    assert "(id none, " in lines[1]
    bring(1, own, "1" * 32)
    assert len(taken.links) == 1
    ids.append(other)  # the service's database was created again
    bring(7, other)
    assert len(taken.links) == 2
    bring(3, own, "1" * 32)
    assert len(taken.links) == 2
    assert len(caplog.records) == 3
