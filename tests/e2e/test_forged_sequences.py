"""Messages with the UUID of a working publisher and false sequences: counters are bounded, and objects are right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.model import Link
from pubsub_lib.core.sequence_gaps import Tally
from pubsub_zmq.buckets import Heads
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_poison import TOPIC, Rogue

AHEAD: Final = 1000
"""A false sequence that the stream could have reached. All messages up to it seem to be missing."""


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path, sqlite_url, publishers_ips="127.0.0.1, 127.0.0.2")
    yield found
    found.close()


def last_link(store: Store) -> Link:
    """The topic's newest link, which every replica has: it changes nothing."""
    links, _, complete = store.read_links(None, 1000)
    assert complete
    return [each for each in links if each.topic == TOPIC][-1]


def message(store: Store, uuid: str, sequence: int) -> list[bytes]:
    """The frames of a true link with a false sequence."""
    envelope = Envelope("api-1", uuid, TOPIC, sequence, [Message(last_link(store))], None, store.store_id)
    head, body = codec.encode(envelope)
    return [Heads(exact=False).of(head)[0], body]


def noticed(sequences: Tally) -> int:
    """Number of messages whose sequence was not the next one."""
    return sequences.jumps + sequences.duplicates + sequences.holes + sequences.filled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sequences", "holes"),
    [((2**62,), 0), ((1,), 0), ((2**62, 1, 2**61), 0), ((AHEAD,), AHEAD)],
    ids=["high", "low", "changing", "ahead"],
)
def test_rule_11_forged_sequences_change_bounded_counters_and_no_object(
    sequences: tuple[int, ...], holes: int, host: Host
) -> None:
    """``holes``: maximum number of messages that seem to be lost."""
    host.service()
    worker = host.worker()
    write(worker, 5)
    with Store(host.database) as store, Watched(host.settings) as watched:
        replica = watched.replica
        watched.must_come_to(write(worker, 5), store)
        (entry,) = store.directory.live()
        rogue = Rogue(f"tcp://127.0.0.2:{host.settings.bind_address.rpartition(':')[2]}")
        try:
            before = replica.status()
            rogue.frames = [message(store, entry.uuid, each) for each in sequences]
            for _ in range(5):  # true messages between false ones
                earlier = noticed(replica.status().sequences)
                watched.must_come_to(write(worker, 5), store)
                assert poll(lambda: noticed(replica.status().sequences) > earlier, LONG), "the attack does not work"  # noqa: B023
            now = replica.status()
            assert now.sequences.holes - before.sequences.holes <= holes
            assert now.ready
            assert not now.problems
            assert not now.quarantined
        finally:
            rogue.close()
        watched.must_come_to(write(worker, 5), store)
