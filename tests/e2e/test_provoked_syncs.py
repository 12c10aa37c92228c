"""A peer that sends false digests and nonces causes a bounded number of full syncs (rule 14)."""

import secrets
import threading
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import pytest
import zmq
from _processes import poll

from pubsub_lib import Store, Timing
from pubsub_lib.core import codec, quarantine
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import ALL, Head, Point
from pubsub_lib.core.quarantine import CONTRADICTIONS
from pubsub_zmq.buckets import Heads
from pubsub_zmq.subscription_budget import request_in
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_forged_changes import TOPIC, forged

INTERVAL: Final = 0.25
"""The minimum time between two syncs."""
PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"


def max_fulls(spacing: float, interval: float) -> int:
    """The contradictions, and what the minimum time between two syncs allows between those that count."""
    return CONTRADICTIONS + (CONTRADICTIONS - 1) * (1 + ceil(spacing / interval))


class Liar:
    """A publisher beside the true one. It continues the chain of a topic with its own link, again and again, and
    either with a wrong digest, or with hello replies that give the link's position another nonce.
    """

    def __init__(self, head: Head, store_id: bytes, lie: str) -> None:
        self.uuid = secrets.token_hex(16)
        self._store_id = store_id
        link = forged(head)
        self._lie = lie
        self._link = msgspec.structs.replace(link, digest=link.digest ^ 1) if lie == "digest" else link
        self._stop = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.address = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(LONG)
        self._socket.close()
        self._context.term()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._socket.poll(50):
                self._send(Envelope("api-2", self.uuid, TOPIC, 1, [Message(self._link)], None, self._store_id))
                continue
            request = request_in(self._socket.recv())
            if request and self._lie == "nonce":
                self._reply(codec.read_hello_request(request).nonce)

    def _reply(self, nonce: str) -> None:
        link = self._link
        other = Point(link.point.position, link.point.nonce + 1)
        hello = Hello({TOPIC: 1}, {TOPIC: Head(other, link.count, link.digest)}, other, 0.0, nonce)
        self._send(Envelope("api-2", self.uuid, ALL, 0, (), hello, self._store_id))

    def _send(self, envelope: Envelope) -> None:
        head, body = codec.encode(envelope)
        self._socket.send_multipart((Heads(exact=False).of(head)[0], body))


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path, sqlite_url, max_idle_time=1.0, sync_interval=INTERVAL)
    yield found
    found.close()


def test_number_of_provoked_full_syncs_is_documented() -> None:
    number = max_fulls(quarantine.SPACING, Timing().sync_interval)
    assert f"at most {number} full syncs of a replica" in " ".join(PAGE.read_text().split())


@pytest.mark.quick_variants(1)
@pytest.mark.slow
@pytest.mark.parametrize("lie", ["digest", "nonce"])
def test_rule_14_lies_cause_a_bounded_number_of_full_syncs(lie: str, host: Host) -> None:
    host.service()
    worker = host.worker()
    write(worker, 20)
    with Store(host.database) as store:
        head = store.read_heads([TOPIC]).topics[TOPIC]
        liar = Liar(head, store.store_id, lie)
        store.directory.register("api-2", liar.uuid, liar.address, 600.0)  # else its links only wait
        settings = msgspec.structs.replace(host.settings, addresses=(*host.settings.addresses, liar.address))
        try:
            with Watched(settings, (TOPIC,)) as watched:
                replica = watched.replica
                assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
                liar.start()
                assert poll(lambda: bool(replica.status().quarantined), LONG), "it goes on for ever"
                assert [(each.service, each.uuid) for each in replica.status().quarantined] == [("api-2", liar.uuid)]
                assert poll(lambda: not watched.differs(store), LONG)
                caused = watched.fulls() - watched.first_fulls
                assert caused == 1

                dropped = replica.status().dropped["quarantined"]
                assert poll(lambda: replica.status().dropped["quarantined"] >= dropped + 50, LONG), "it lies on"
                assert watched.fulls() - watched.first_fulls == caused, "its lies have no effect any more"
                replica.wait_handled(write(worker, 2), LONG, topics=(TOPIC,))
                assert not watched.differs(store)
        finally:
            liar.close()
