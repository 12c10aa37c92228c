"""Clients that make and end hello requests, or connections, as fast as they can do not silence a service for others.

Meanwhile ``/ready`` is true: it is 200 only while changes arrive. A service without its guard shows that it is 503 when
they do not.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.silence import HANGS, Excuses, Observer
from tests.e2e.warm_start import Running
from tests.unit.drivers.zmq.strangers import crowd, leaving
from tests.unit.drivers.zmq.test_buckets import random_names
from tests.unit.drivers.zmq.test_inflow_guard import churn
from tests.unit.drivers.zmq.world import world

SCRIPT = str(Path(__file__).with_name("service_noting.py"))
GAP = 1.0
"""Seconds for which the others may receive nothing."""
HANG = 2.0
"""Seconds after which ``/ready`` must be 503 when nothing is sent, see ``max_sending`` of a driver."""
SLACK = 1.0
SECONDS = 10.0


@contextmanager
def following(address: str, worker: Running) -> Iterator[None]:
    """A subscriber of many topics, from when the service has its subscriptions until the end of the block."""
    with world() as on:
        many = on.listener(*random_names(10_000), "t0", to=(address,))
        many.wait_for_message(lambda: write(worker, 2), "t0")
        yield


Attack = Callable[[str], AbstractContextManager[None]]
LIMITS = ("paused", "ended", "unread", "unfinished")
"""Counters of what the service does against a client that sends too much."""
ATTACKS: dict[str, tuple[Attack, tuple[str, ...], int]] = {
    "hello requests": (churn, LIMITS, 1),
    "connections": (leaving, ("connected",), 200),
    "1000 clients": (crowd, ("disconnected",), 2000),
}
"""Each with counters of the service, and how much they must grow at least: then the attack works."""


def counted(host: Host, names: tuple[str, ...]) -> float:
    return sum(host.metric("sending_total", each) for each in names)


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path / "host", sqlite_url, max_idle_time=10.0)  # no polling ends a silence
    yield found
    found.close()


def started(host: Host, guard: str) -> Excuses:
    """Start the service; measure its sending thread."""
    noted = host.config.with_name("thread")
    noted.write_text("")
    host.program = [SCRIPT, str(noted), guard]
    process = host.service()
    assert poll(lambda: noted.read_text() != "", LONG)
    return Excuses(process, int(noted.read_text()))


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS)
def test_churn_silences_no_replica_and_ready_is_true(attack: str, host: Host) -> None:
    excuses = started(host, "guarded")
    begin, counters, least = ATTACKS[attack]
    worker = host.worker()
    with Store(host.database) as store, Watched(host.settings) as watched, excuses:
        watched.must_come_to(write(worker, 3), store)
        observer = Observer(host, watched, worker)
        before = counted(host, counters)
        with following(host.settings.bind_address, worker), begin(host.settings.bind_address):
            seen = observer.observe(SECONDS, lambda: counted(host, counters) >= before + least, excuses)
        assert seen.longest() < GAP
        assert seen.lies(HANG + SLACK, GAP) == []
        watched.must_equal(store)
    assert host.is_ready()


@pytest.mark.long
def test_ready_fails_while_hello_requests_silence_a_service_without_its_guard(host: Host) -> None:
    excuses = started(host, "unguarded")
    worker = host.worker()
    with Store(host.database) as store, Watched(host.settings) as watched, excuses:
        watched.must_come_to(write(worker, 3), store)
        observer = Observer(host, watched, worker)
        with churn(host.settings.bind_address):
            seen = observer.observe(SECONDS, lambda: any(HANGS in each.text for each in observer.looks), excuses)
        assert max(each.seconds for each in seen.waits) > HANG
        assert seen.lies(HANG + SLACK, GAP) == []
    assert poll(host.is_ready, LONG), "it is ready again"
