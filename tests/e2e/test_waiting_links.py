"""A rogue publisher sends links that wait on many topics: a controller's memory is bounded for all topics together."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from _processes import free_port, poll

from pubsub_lib import Store
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import Change, Link, Point
from pubsub_zmq.buckets import Heads
from tests.e2e.service_host import LONG, Host, answer, write
from tests.e2e.test_large_hellos import counted
from tests.e2e.test_many_connections import resident
from tests.e2e.test_poison import Rogue

TOPICS: Final = tuple(f"many-{number}" for number in range(200))
EACH: Final = 500_000
"""``max_waiting_bytes`` of the controller: those of one topic."""
VALUE: Final = b'"%s"' % (b"x" * 120_000)
"""A value of which a topic may keep four."""
MORE: Final = 50
"""MiB by which the controller may grow. The links of all topics have 96 MB, each of which fits the limits of its own
topic; those that may wait have 1 MB, and the transport keeps 32 of them."""


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(
        tmp_path / "host",
        sqlite_url,
        publishers_ips="127.0.0.1,127.0.0.2",
        replica_metrics_port=free_port(),
        max_waiting_bytes=EACH,
        message_delay_window=60.0,  # so that nothing else drops the links
    )
    yield found
    found.close()


def waiting(store: Store, uuid: str) -> list[list[bytes]]:
    """Frames of four links on each topic, none of which connects to another."""
    frames = []
    for topic in TOPICS:
        for number in range(1, 5):
            point = Point(10**6 + 2 * number, 7)
            change = Change("item", f"k{number}", "set", point.position, VALUE)
            link = Link(topic, Point(point.position - 1, 7), point, [change], 1, 0, Point(point.position - 1, 7), 1)
            head, body = codec.encode(Envelope("api-1", uuid, topic, number, [Message(link)], None, store.store_id))
            frames.append([Heads(exact=False).of(head)[0], body])
    return frames


@pytest.mark.slow
def test_rule_02_links_that_wait_on_many_topics_take_bounded_memory_and_true_changes_are_received(host: Host) -> None:
    host.service()
    worker, controller = host.worker(), host.controller(topics=TOPICS)
    assert answer(controller) == "synced\n"
    assert controller.stdin is not None
    before = resident(controller)
    with Store(host.database) as store:
        (entry,) = store.directory.live()
        frames = waiting(store, entry.uuid)
    rogue = Rogue(f"tcp://127.0.0.2:{host.settings.bind_address.rpartition(':')[2]}")
    try:
        rogue.frames = frames
        assert poll(lambda: counted(host, 'driver_total{what="received"}') > 3 * len(frames), LONG), "no attack"
        print(write(worker, 5), file=controller.stdin, flush=True)
        assert len(json.loads(answer(controller))) == 5
        assert resident(controller, "VmHWM") <= before + MORE
        assert counted(host, 'dropped_total{why="overflowed"}') > 0
    finally:
        rogue.close()
