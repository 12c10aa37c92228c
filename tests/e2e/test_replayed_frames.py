"""A program at the second address of a replica sends what it received from the service again, and goodbyes (rule 6)."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import zmq
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL, ZERO
from pubsub_zmq.buckets import Heads, is_bucketed, plain
from tests.e2e.service_host import LONG, Host, Watched, write

WRITES = 20
ROUNDS = 50
GOODBYES = 1000
Frames = Sequence[bytes]


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path, sqlite_url, publishers_ips="127.0.0.1, 127.0.0.2", max_idle_time=1.0)
    yield found
    found.close()


def goodbye(uuid: str, store_id: bytes) -> Frames:
    """The last message of a publisher that ends."""
    head, body = codec.encode(Envelope("api-1", uuid, ALL, 0, (), Hello({}, {}, ZERO, 0.0, "", True), store_id))
    return Heads(exact=False).of(head)[0], body


def recorded(curious: "zmq.Socket[bytes]", store: Store, topics: Sequence[str]) -> list[Frames]:
    """All frames of the service until those of the newest link of each topic."""
    frames: list[Frames] = []
    missing = {head.point for head in store.read_heads(topics).topics.values()}
    while missing:
        assert curious.poll(int(1000 * LONG))
        frames.append(curious.recv_multipart())
        head, body = frames[-1]
        envelope = codec.decode((plain(head) if is_bucketed(head) else head, body))
        missing -= {each.link.point for each in envelope.messages}
    return frames


def test_rule_06_replayed_frames_and_forged_goodbyes_change_nothing(host: Host) -> None:
    host.service()
    worker = host.worker()
    port = host.settings.bind_address.rpartition(":")[2]
    with (
        Store(host.database) as store,
        Watched(host.settings) as watched,
        zmq.Context() as context,
        context.socket(zmq.SUB) as curious,
        context.socket(zmq.XPUB) as rogue,
    ):
        replica, topics = watched.replica, watched.topics
        for each in (curious, rogue):
            each.setsockopt(zmq.LINGER, 0)
        curious.subscribe(b"")
        curious.connect(f"tcp://127.0.0.1:{port}")
        watched.must_come_to(write(worker, 2), store)
        assert curious.poll(int(1000 * LONG))
        watched.must_come_to(write(worker, WRITES), store)
        frames = recorded(curious, store, topics)
        rogue.setsockopt(zmq.SNDHWM, 0)
        rogue.bind(f"tcp://127.0.0.2:{port}")
        assert rogue.poll(int(1000 * LONG)), "the replica subscribes"
        before, syncs = replica.status(), watched.syncs()
        (entry,) = store.directory.live()
        order = random.Random(0)
        for number in range(ROUNDS):
            # In their order, then in any order.
            for frame in frames if number == 0 else order.sample(frames, len(frames)):
                rogue.send_multipart(frame)
            for _ in range(GOODBYES // ROUNDS):
                rogue.send_multipart(goodbye(entry.uuid, store.store_id))
        expected = before.dropped["old"] + ROUNDS * WRITES // 2
        assert poll(lambda: replica.status().dropped["old"] >= expected, LONG), "the replica does not receive them"
        assert replica.status().counters.applied == before.counters.applied
        watched.must_come_to(write(worker, WRITES), store)
        assert watched.syncs() == syncs
        after = replica.status()
        assert after.staleness < 10.0
        assert not after.polling
        assert (after.quarantined, after.sequences.holes) == ([], before.sequences.holes)
