"""A client without a key subscribes to the first byte of all hello replies, see docs/security.md."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Hello
from tests.e2e.service_host import LONG, Host, Watched, write

SUBSCRIBED = "t0"
NONCES = 5
"""Number of the replica's requests that are made again by the client."""


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path, sqlite_url, publishers_ips="127.0.0.1", max_idle_time=1.0, default_topic=False)
    yield found
    found.close()


def next_reply(curious: "zmq.Socket[bytes]") -> Hello:
    """The next message for this client, which is a hello reply for another one."""
    assert curious.poll(int(1000 * LONG)), "no reply for another client arrives"
    envelope = codec.decode(curious.recv_multipart())
    assert envelope.hello is not None
    assert envelope.hello.nonce
    assert not envelope.messages
    return envelope.hello


def test_client_of_the_bare_prefix_receives_requested_heads_only_and_disturbs_no_replica(host: Host) -> None:
    """It requests replies with the nonces of others, which it has received, for another topic."""
    host.service()
    worker = host.worker()
    write(worker, 5)
    with (
        Store(host.database) as store,
        Watched(host.settings, (SUBSCRIBED,)) as watched,
        zmq.Context() as context,
        context.socket(zmq.XSUB) as curious,
    ):
        replica = watched.replica
        curious.setsockopt(zmq.LINGER, 0)
        curious.connect(f"tcp://127.0.0.1:{host.settings.bind_address.rpartition(':')[2]}")
        curious.send(b"\1" + codec.private_frame("")[:1])
        heads = store.read_heads([SUBSCRIBED]).topics
        assert poll(lambda: replica.status().chains[SUBSCRIBED].known == heads[SUBSCRIBED].point, LONG)
        syncs, made = watched.syncs(), set[str]()
        while len(made) < NONCES:
            hello = next_reply(curious)
            if set(hello.sequences) == {SUBSCRIBED}:
                assert dict(hello.heads) == heads
                made.add(hello.nonce)
                curious.send(codec.hello_request_frame(hello.nonce, ["t1"]))
            else:  # the publisher's reply to that
                assert set(hello.sequences) == {"t1"}
                assert hello.nonce in made
        watched.must_come_to(write(worker, 4), store)
        assert watched.syncs() == syncs
        assert replica.staleness() < 10.0, "it polls the store"
        assert not replica.status().polling
