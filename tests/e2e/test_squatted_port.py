"""A program takes a dead publisher's port, and with it the publisher's UUID, whose lease still lasts (rule 14)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core.leased_publishers import GRACE
from pubsub_lib.core.timing import anchor_bound
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_forged_changes import TOPIC, VERIFY, Squatter

DISCOVERY = 1.0
"""Seconds between two readings of the directory."""
SYNC = 1.0
"""Seconds that a sync may take here, and as many for which it may wait."""
BUSY = 10.0
"""Seconds that a busy machine may need in addition."""
LONG_LEASE = 30.0
"""With ``GRACE`` it lasts longer than the quarantine needs to begin, so that only the quarantine can end the lies."""
SHORT_LEASE = 2.0
AFTER = 10.0
"""Seconds for which the port is held after the publisher is no longer used for its lease."""


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    """The parameters: seconds of ``verify_interval`` and of the lease."""
    verify, lease = request.param
    found = Host(
        tmp_path,
        sqlite_url,
        publishers_ips="127.0.0.1",
        max_idle_time=1.0,
        verify_interval=verify,
        discovery_interval=DISCOVERY,
    )
    found.change("lease = 2\n", f"lease = {lease}\n")
    yield found
    found.close()


class Squat:
    """The service is killed, and a squatter with the same UUID has its port until ``close``."""

    def __init__(self, host: Host, store: Store, watched: Watched) -> None:
        self._replica = watched.replica
        self._watched = watched
        service, worker = host.service(), host.worker()
        write(worker, 5)
        head = store.read_heads([TOPIC]).topics[TOPIC]
        assert poll(lambda: self._replica.status().chains[TOPIC].known == head.point, LONG)
        (entry,) = store.directory.live()
        assert poll(lambda: self._replica._engine.read(lambda state: entry.uuid in state.leased.live), LONG)
        service.kill()
        service.wait(LONG)
        self.killed = time.monotonic()
        self.uuid = entry.uuid
        self.worker = worker
        self.squatter = Squatter(entry.address, head, store.store_id, entry.uuid)

    def close(self) -> None:
        self.squatter.close()

    def shown(self) -> bool:
        """Whether the replica shows what was never committed."""
        return self._replica.get("item", "planted") is not None

    def last_shown(self, until: float) -> float:
        """The seconds from the kill to the last look in which the replica showed it; looks until ``until`` seconds."""
        last = 0.0
        while (now := time.monotonic() - self.killed) < until:
            if self.shown():
                last = now
            time.sleep(0.002)
        return last

    def must_be_over(self, bound: float, until: float) -> None:
        """Check that the lies were believed at first, and neither read nor handled after ``bound`` seconds."""
        assert poll(self.shown, LONG), "the attack does not work"
        assert self.last_shown(bound + BUSY) > 0.0
        sent, calls = self.squatter.sent, len(self._watched.versions["planted"])
        assert self.last_shown(until) == 0.0, "it is believed after the bound"
        assert len(self._watched.versions["planted"]) == calls
        assert self.squatter.sent > sent, "the squatter sends all the time"


def must_be_believed_again(host: Host, store: Store, watched: Watched, squat: Squat) -> None:
    """Start the service again: its links are used, and its hellos prove."""
    replica = watched.replica
    host.service()
    assert poll(lambda: not replica.status().polling, LONG)
    replica.wait_handled(write(squat.worker, 5), LONG, topics=(TOPIC,))
    assert not watched.differs(store)
    assert squat.uuid not in [each.uuid for each in store.directory.live()]


def lies_end(host: Host, bound: float, until: float) -> dict[str, int]:
    """Let a squatter lie until these seconds after the kill. The dropped messages by their cause."""
    with Store(host.database) as store, Watched(host.settings, (TOPIC,)) as watched:
        squat = Squat(host, store, watched)
        try:
            squat.must_be_over(bound, until)
            assert watched.replica.staleness() < BUSY, "it polls the store"
            dropped = dict(watched.replica.status().dropped)
        finally:
            squat.close()
        must_be_believed_again(host, store, watched, squat)
        return dropped


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("host", [(VERIFY, LONG_LEASE)], indirect=True, ids=["verified"])
def test_rule_14_contradicted_squatter_with_the_services_uuid_is_not_used(host: Host) -> None:
    """Its lease still lasts when it is quarantined, and has ended when the port is free again."""
    bound = anchor_bound(host.settings.timing, SYNC, SYNC)
    assert bound < LONG_LEASE / 2 + GRACE, "the service renewed its lease after at most half of it"
    assert lies_end(host, bound, LONG_LEASE + GRACE + DISCOVERY + AFTER)["quarantined"] > 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("host", [(0.0, SHORT_LEASE)], indirect=True, ids=["never verified"])
def test_rule_14_squatter_with_the_services_uuid_is_not_used_after_its_lease(host: Host) -> None:
    """No verification contradicts it. Without a proof by a publisher with a lease the replica polls the store, which
    contradicts it then.
    """
    unused = SHORT_LEASE + DISCOVERY + GRACE + DISCOVERY
    bound = unused + host.settings.timing.stale_after + host.settings.timing.poll_interval + 2 * SYNC
    assert lies_end(host, bound, bound + BUSY + AFTER)["quarantined"] > 0
