"""A rogue publisher beside a service, which works all the time, sends positions that the store does not have (rule 14).

The replica connects to both, as with two addresses in ``publishers_ips``.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core import digest
from pubsub_lib.core.model import Head, Link, Point
from pubsub_lib.core.timing import anchor_bound
from pubsub_lib.errors import WaitTimeout
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_forged_changes import TOPIC, VERIFY, Squatter, forged
from tests.e2e.warm_start import Running

LAST: Final = 2**63 - 1
"""The largest position."""
FAR: Final = 999_999_999
"""A position that the store does not reach here."""
WAIT: Final = 5.0
SYNC: Final = 1.0
"""Seconds that a sync may take here, and as many for which it may wait."""
BUSY: Final = 10.0
"""Seconds that a busy machine may need in addition."""
AFTER: Final = 10.0
"""Seconds for which the rogue goes on after the bound."""


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(
        tmp_path, sqlite_url, publishers_ips="127.0.0.1, 127.0.0.2", max_idle_time=1.0, verify_interval=VERIFY
    )
    yield found
    found.close()


def last_position(head: Head) -> Link:
    """As ``forged``, with the largest position."""
    link = forged(head)
    (change,) = link.changes
    change = msgspec.structs.replace(change, version=LAST)
    total = digest.add(head.digest, digest.fingerprint("item", "planted", LAST, change.value or b""))
    return msgspec.structs.replace(link, point=Point(LAST, 7), changes=[change], digest=total)


def beside(host: Host) -> str:
    """The address of the rogue."""
    return f"tcp://127.0.0.2:{host.settings.bind_address.rpartition(':')[2]}"


def known_head(store: Store, watched: Watched) -> Head:
    """The head of the topic, when the replica has it and uses only publishers with a lease."""
    replica = watched.replica
    head = store.read_heads([TOPIC]).topics[TOPIC]
    assert poll(lambda: replica.status().chains[TOPIC].known == head.point, LONG)
    assert poll(lambda: replica._engine.read(lambda state: state.leased.required), LONG)
    return head


@contextmanager
def followed(host: Host) -> Iterator[tuple[Running, Store, Watched, Head]]:
    """A service, and a worker that wrote. Yields the worker, the store, a replica, and the topic's head."""
    host.service()
    worker = host.worker()
    write(worker, 5)
    with Store(host.database) as store, Watched(host.settings, (TOPIC,)) as watched:
        yield worker, store, watched, known_head(store, watched)


def must_wait_for_true_positions(worker: Running, store: Store, watched: Watched) -> None:
    """Check that a wait for a false position times out, and that the replica receives what is written."""
    with pytest.raises(WaitTimeout):
        watched.replica.wait_for(FAR, WAIT, topics=(TOPIC,))
    watched.replica.wait_handled(write(worker, 2), LONG, topics=(TOPIC,))
    assert not watched.differs(store)


@pytest.mark.slow
def test_rule_14_position_of_a_hello_without_a_lease_ends_no_wait(host: Host) -> None:
    with followed(host) as (worker, store, watched, head):
        replica = watched.replica
        rogue = Squatter(beside(host), head, store.store_id, secrets.token_hex(16), FAR)
        try:
            assert poll(lambda: replica.status().counters.unleased > 0, LONG), "the attack does not work"
            must_wait_for_true_positions(worker, store, watched)
        finally:
            rogue.close()


@pytest.mark.slow
def test_rule_14_position_of_a_hello_with_a_lease_ends_waits_only_until_the_next_reading(host: Host) -> None:
    """The heads are true, so nothing but the position of the store is false."""
    with followed(host) as (worker, store, watched, head):
        replica = watched.replica
        used = secrets.token_hex(16)
        store.directory.register("api-2", used, "", 1000.0)
        before = Point(head.point.position - 1, 7)
        true = Link(TOPIC, before, head.point, [], head.count, head.digest, before, 1, "api-1", 0.0)
        rogue = Squatter(beside(host), head, store.store_id, used, FAR, true)
        try:
            replica.wait_for(FAR, LONG, topics=(TOPIC,))
            assert poll(lambda: bool(replica.status().quarantined), LONG), "it is believed for ever"
            assert [each.uuid for each in replica.status().quarantined] == [used]
            must_wait_for_true_positions(worker, store, watched)
        finally:
            rogue.close()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("link", [forged, last_position], ids=["next position", "last position"])
@pytest.mark.parametrize("uuid", ["its own", "the service's"])
def test_rule_14_rogue_beside_the_service_is_not_used_after_the_bound(
    uuid: str, link: Callable[[Head], Link], host: Host
) -> None:
    """With a lease of its own, or with the UUID of the service, whose messages are then not used, either."""
    with followed(host) as (worker, store, watched, head):
        replica = watched.replica
        (entry,) = store.directory.live()
        used = entry.uuid
        if uuid == "its own":
            used = secrets.token_hex(16)
            store.directory.register("api-2", used, "", 1000.0)
        rogue = Squatter(beside(host), head, store.store_id, used, 0, link(head))
        try:
            assert poll(lambda: replica.get("item", "planted") is not None, LONG), "the attack does not work"
            bound = anchor_bound(host.settings.timing, SYNC, SYNC)
            until = time.monotonic() + bound + BUSY
            assert poll(lambda: time.monotonic() > until or bool(replica.status().quarantined), LONG)
            assert poll(lambda: replica.get("item", "planted") is None, until - time.monotonic() + BUSY)
            assert [each.uuid for each in replica.status().quarantined] == [used]
            sent, end, wrong = rogue.sent, time.monotonic() + AFTER, 0
            while time.monotonic() < end:
                wrong += replica.get("item", "planted") is not None
                time.sleep(0.002)
            assert wrong == 0
            assert rogue.sent > sent
            replica.wait_handled(write(worker, 2), LONG, topics=(TOPIC,))
            assert not watched.differs(store)
        finally:
            rogue.close()
