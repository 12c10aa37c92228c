"""A program that takes a dead publisher's port, and sends changes that were never committed (rule 14)."""

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from _processes import poll

from pubsub_lib import Store, Worker
from pubsub_lib.core import codec, digest
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import ALL, Change, Head, Link, Point
from pubsub_lib.core.quarantine import FIRST_SECONDS
from pubsub_zmq.buckets import Heads
from pubsub_zmq.subscription_budget import request_in
from tests.e2e.service_host import LONG, Host, Watched, write

TOPIC = "t0"
VERIFY = 1.0
SECONDS = 120.0
"""Time for which the port is held."""
CHANGING = 6.0
"""The same for a squatter that no quarantine can end: it would be believed from its first link on."""


class Squatter:
    """A publisher that has read the store's id from the wire. It continues a topic's chain with its own link, and
    proves it by hello replies. Its UUID is ``uuid``, or "": another one for each message.
    """

    def __init__(
        self, address: str, head: Head, store_id: bytes, uuid: str = "", position: int = 0, link: Link | None = None
    ) -> None:
        """``position``: of the store in its replies, if not the link's. ``link``: instead of :func:`forged`."""
        self.sent = 0
        self._store_id = store_id
        self._fixed = uuid
        self._link = link or forged(head)
        self._store = Point(position, 5) if position else self._link.point
        self._stop = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        assert poll(lambda: self._binds(address), LONG)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(LONG)
        self._socket.close()
        self._context.term()

    @property
    def _uuid(self) -> str:
        return self._fixed or secrets.token_hex(16)

    def _binds(self, address: str) -> bool:
        try:
            self._socket.bind(address)
        except zmq.ZMQError:  # the killed service's connections
            return False
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._socket.poll(50):
                self._send(Envelope("api-1", self._uuid, TOPIC, 1, [Message(self._link)], None, self._store_id))
                self.sent += 1
                continue
            request = request_in(self._socket.recv())
            if request:
                self._reply(request)

    def _reply(self, frame: bytes) -> None:
        request = codec.read_hello_request(frame)
        link = self._link
        heads = {TOPIC: Head(link.point, link.count, link.digest)}
        hello = Hello({TOPIC: 1}, heads, self._store, 0.0, request.nonce)
        self._send(Envelope("api-1", self._uuid, ALL, 0, (), hello, self._store_id))

    def _send(self, envelope: Envelope) -> None:
        head, body = codec.encode(envelope)
        self._socket.send_multipart((Heads(exact=False).of(head)[0], body))


def forged(head: Head) -> Link:
    """A link that connects to this head, and fits count and digest."""
    version = head.point.position + 1
    change = Change("item", "planted", "create", version, b'{"owner":"mallory"}')
    total = digest.add(head.digest, digest.fingerprint("item", "planted", version, change.value or b""))
    return Link(TOPIC, head.point, Point(version, 7), [change], head.count + 1, total, head.point, 1, "api-1", 0.0)


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path, sqlite_url, publishers_ips="127.0.0.1", max_idle_time=1.0, verify_interval=VERIFY)
    yield found
    found.close()


@pytest.mark.long
@pytest.mark.slow
def test_rule_14_changes_of_a_squatter_are_undone_and_then_not_used(host: Host) -> None:
    service, worker = host.service(), host.worker()
    write(worker, 5)
    address = f"tcp://127.0.0.1:{host.settings.bind_address.rpartition(':')[2]}"
    with Store(host.database) as store, Watched(host.settings, (TOPIC,)) as watched:
        replica = watched.replica
        head = store.read_heads([TOPIC]).topics[TOPIC]
        assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
        service.kill()
        service.wait(LONG)
        # Only a UUID with a lease is believed at all: a squatter can take that of a service, which every message shows.
        taken = secrets.token_hex(16)
        store.directory.register("api-2", taken, "", 1000.0)
        squatter = Squatter(address, head, store.store_id, taken)
        try:
            assert poll(lambda: replica.get("item", "planted") is not None, LONG), "the attack does not work"
            assert poll(lambda: replica.status().dropped["quarantined"] > 0, LONG), "it goes on for ever"
            assert replica.status().counters.contradicted >= 1
            assert poll(lambda: replica.get("item", "planted") is None, LONG)
            sent, until = squatter.sent, time.monotonic() + SECONDS
            wrong = 0
            while time.monotonic() < until:
                wrong += replica.get("item", "planted") is not None
            assert wrong == 0
            assert squatter.sent > sent
            assert replica.staleness() < 10.0, "it polls the store"
        finally:
            squatter.close()
        host.service()
        position = write(worker, 2)
        replica.wait_handled(position, LONG, topics=(TOPIC,))
        assert not watched.differs(store)


@pytest.mark.slow
def test_rule_14_squatter_without_a_lease_does_not_prove_freshness(tmp_path: Path, sqlite_url: str) -> None:
    """Without any verification: the replica polls the store, because no publisher with a lease answers."""
    host = Host(tmp_path, sqlite_url, publishers_ips="127.0.0.1", max_idle_time=1.0, verify_interval=0.0)
    try:
        service, worker = host.service(), host.worker()
        write(worker, 5)
        address = f"tcp://127.0.0.1:{host.settings.bind_address.rpartition(':')[2]}"
        with Store(host.database) as store, Watched(host.settings, (TOPIC,)) as watched:
            replica = watched.replica
            head = store.read_heads([TOPIC]).topics[TOPIC]
            assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
            service.kill()
            service.wait(LONG)
            squatter = Squatter(address, head, store.store_id, secrets.token_hex(16))
            try:
                assert poll(lambda: replica.status().counters.unleased > 0, LONG), "the attack does not work"
                assert poll(lambda: replica.status().polling, LONG)
                assert replica.get("item", "planted") is None
            finally:
                squatter.close()
            host.service()
            assert poll(lambda: not replica.status().polling, LONG), "a restarted service proves again"
            position = write(worker, 2)
            replica.wait_handled(position, LONG, topics=(TOPIC,))
            assert not watched.differs(store)
    finally:
        host.close()


@pytest.mark.quick_variants(1)
@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the service"])
def test_rule_14_squatter_that_changes_its_uuid_changes_no_replica(
    tmp_path: Path, sqlite_url: str, beside: bool
) -> None:
    """Without any verification. A quarantine is of one UUID; here no two messages have the same."""
    host = Host(tmp_path, sqlite_url, publishers_ips="127.0.0.1, 127.0.0.2", max_idle_time=1.0, verify_interval=0.0)
    try:
        service, worker = host.service(), host.worker()
        write(worker, 5)
        port = host.settings.bind_address.rpartition(":")[2]
        with Store(host.database) as store, Watched(host.settings, (TOPIC,)) as watched:
            replica = watched.replica
            head = store.read_heads([TOPIC]).topics[TOPIC]
            assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
            assert poll(lambda: replica._engine.read(lambda state: state.leased.required), LONG)
            if not beside:
                service.kill()
                service.wait(LONG)
            squatter = Squatter(f"tcp://127.0.0.{2 if beside else 1}:{port}", head, store.store_id)
            try:
                assert poll(lambda: replica._engine.read(lambda state: state.unleased.messages) > 0, LONG)
                sent, until = squatter.sent, time.monotonic() + CHANGING
                wrong = 0
                while time.monotonic() < until:
                    wrong += replica.get("item", "planted") is not None
                assert wrong == 0
                assert squatter.sent > sent
                if not beside:
                    assert poll(lambda: replica.status().polling, LONG)
                else:
                    assert replica.staleness() < 3.0, "the service proves"
                    position = write(worker, 2)
                    replica.wait_handled(position, LONG, topics=(TOPIC,))
            finally:
                squatter.close()
            if not beside:
                host.service()
            position = write(worker, 2)
            replica.wait_handled(position, LONG, topics=(TOPIC,))
            assert replica.get("item", "planted") is None
            assert not watched.differs(store)
    finally:
        host.close()


@pytest.mark.slow
def test_rule_14_worker_that_hands_over_what_it_did_not_commit_is_not_used(host: Host) -> None:
    host.service()
    honest = host.worker()
    write(honest, 5)
    with (
        Store(host.database) as store,
        Watched(host.settings, (TOPIC,)) as watched,
        Worker(host.settings, store) as rogue,
    ):
        replica = watched.replica
        head = store.read_heads([TOPIC]).topics[TOPIC]
        assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
        rogue.hand_over([forged(head)])
        assert poll(lambda: host.metric("workers_total", "contradicted") == 1, LONG)
        assert host.metric("excluded", "workers") == 1
        assert poll(lambda: replica.get("item", "planted") is None, LONG)
        position = write(honest, 5)
        replica.wait_handled(position, LONG, topics=(TOPIC,))
        rogue.hand_over([forged(store.read_heads([TOPIC]).topics[TOPIC])])
        assert poll(lambda: host.metric("workers_total", "quarantined") == 1, LONG)
        with store.transaction() as tx:
            tx.create("item", "true", {"by": "the same program"}, topic=TOPIC)
        assert poll(lambda: replica.get("item", "true") is not None, LONG), "it is published from the changelog"
        position = write(honest, 5)
        replica.wait_handled(position, LONG, topics=(TOPIC,))
        assert replica.get("item", "planted") is None
        assert host.metric("workers_total", "contradicted") == 1
        assert not watched.differs(store)


@pytest.mark.slow
def test_rule_14_worker_that_changes_its_uuid_is_believed_once(host: Host) -> None:
    host.service()
    honest = host.worker()
    write(honest, 5)
    with Store(host.settings) as store, Watched(host.settings, (TOPIC,)) as watched:
        replica = watched.replica
        late = 0.0
        for number in range(4):
            head = store.read_heads([TOPIC]).topics[TOPIC]
            assert poll(lambda head=head: replica.status().chains[TOPIC].known == head.point, LONG)  # type: ignore[misc]
            with Worker(host.settings, store) as rogue:
                rogue.hand_over([forged(head)])
                assert poll(lambda n=number: host.metric("workers_total", "contradicted") == n + 1, LONG)  # type: ignore[misc]
            assert poll(lambda: replica.get("item", "planted") is None, LONG)
            assert host.metric("workers_total", "doubted") == number + late, "only the first lie was sent"
            position = write(honest, 2)
            replica.wait_handled(position, LONG, topics=(TOPIC,))
            if number == 0:  # on a busy host the changelog may show its first links before it hands them over
                late = host.metric("workers_total", "doubted")
                assert late <= 2
            assert host.metric("workers_total", "doubted") == number + late, "the changelog has confirmed it"
        assert host.metric("excluded", "workers") == 4
        with Worker(host.settings, store), store.transaction() as tx:
            tx.create("item", "true", {"by": "a new program"}, topic=TOPIC)
        assert poll(lambda: replica.get("item", "true") is not None, LONG), "it waits for the changelog only"
        # For the replica the service sent the lie: it is not used for a minute, and the replica polls.
        assert replica.status().counters.contradicted <= 1
        assert all(each.seconds_left <= FIRST_SECONDS for each in replica.status().quarantined)
        assert not watched.differs(store)


@pytest.mark.slow
def test_rule_14_worker_that_alters_a_true_change_is_not_used(host: Host) -> None:
    host.service()
    honest = host.worker()
    write(honest, 5)
    with (
        Store(host.settings) as store,
        Watched(host.settings, (TOPIC,)) as watched,
        Worker(host.settings, Store(host.settings)) as rogue,
    ):
        replica = watched.replica
        head = store.read_heads([TOPIC]).topics[TOPIC]
        assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
        with store.transaction() as tx:
            tx.create("item", "altered", {"owner": "bob"}, topic=TOPIC)
        true = store.read_links(None, 1000)[0][-1]
        value = b'{"owner":"mallory"}'
        total = digest.add(head.digest, digest.fingerprint("item", "altered", true.point.position, value))
        change = msgspec.structs.replace(true.changes[0], value=value)
        rogue.hand_over([msgspec.structs.replace(true, changes=[change], digest=total)])
        assert poll(lambda: host.metric("workers_total", "contradicted") == 1, LONG)
        assert host.metric("excluded", "workers") == 1
        assert poll(lambda: replica.get("item", "altered") == {"owner": "bob"}, LONG)
        rogue.hand_over([forged(store.read_heads([TOPIC]).topics[TOPIC])])
        assert poll(lambda: host.metric("workers_total", "quarantined") == 1, LONG)
        position = write(honest, 5)
        replica.wait_handled(position, LONG, topics=(TOPIC,))
        assert replica.get("item", "planted") is None
        assert not watched.differs(store)
