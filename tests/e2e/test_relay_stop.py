"""A relay under SIGSTOP while changes are written, and after SIGCONT. Its system still accepts connections for it, so
what asks it waits: the replicas below it leave it in time, stay at the other relay, and miss nothing.

*One round*: see ``test_relay_cut.py``. A replica whose ``sync_url`` has both relays asks the one that it left last.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from _processes import pause, poll

from pubsub_lib import Settings, Store
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_relay_cut import QUICK, seconds_until_moved
from tests.e2e.test_relays import listens_to, serve_syncs
from tests.e2e.warm_start import Running

PAUSE = 0.02
"""Seconds between two transactions."""


@contextmanager
def writes(worker: Running) -> Iterator[None]:
    """Transactions without end, a few dozen a second."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(PAUSE):
            write(worker, 1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def relay_below(origin: Host, folder: Path) -> Host:
    """A relay that knows no database, and reads its syncs from its parent."""
    relay = Host(folder, "none", folder.name, role="relay", **QUICK)
    relay.change("store_url = none", f"parents = {origin.settings.bind_address}")
    return relay


def child(origin: Host, parents: Sequence[Host], urls: Sequence[str] = ()) -> Settings:
    """A replica without a database below these parents. Nothing compares it with the store but what is lost."""
    timing = msgspec.structs.replace(origin.settings.timing, verify_interval=0.0)
    return msgspec.structs.replace(
        origin.settings, service_name="", addresses=(), parents=tuple(each.settings.bind_address for each in parents),
        discovery_interval=0.0, bind_address="", store_url="", sync_url=",".join(urls), timing=timing,
    )  # fmt: skip


def must_equal(children: Sequence[Watched], worker: Running, store: Store) -> None:
    position = write(worker, 5)
    for each in children:
        each.must_come_to(position, store)


@pytest.mark.long
def test_replicas_below_a_relay_that_hangs_under_writes_leave_it_once(
    tmp_path: Path, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    hosts: list[Host] = []
    try:
        origin = Host(tmp_path / "api-1", sqlite_url, "api-1", **QUICK)
        hosts.append(origin)
        serve_syncs(origin)
        relays = [relay_below(origin, tmp_path / name) for name in ("relay-1", "relay-2")]
        hosts.extend(relays)
        urls = [serve_syncs(each) for each in relays]
        origin.service()
        hanging, other = (each.service() for each in relays)
        one, two = relays
        with (
            Store(origin.database) as store,
            Watched(child(origin, relays)) as bare,
            Watched(child(origin, relays, urls)) as reader,
            Watched(child(origin, [one])) as single,
        ):
            children, worker = (bare, reader, single), origin.worker()
            must_equal(children, worker, store)
            seconds_until_moved(children, one, 0.0)
            timing = origin.settings.timing
            left = timing.stale_after + timing.max_idle_time + timing.round_trip
            with writes(worker):
                began = time.monotonic()
                assert pause(hanging.pid)
                needed = seconds_until_moved((bare, reader), two, began)
                assert max(needed) <= left, needed
                position = store.read_heads(()).store.position
                for each in (bare, reader):
                    each.replica.wait_handled(position, LONG, topics=each.topics)
                had = time.monotonic() - began
                print(f"left after {needed} s, bound {left} s; has the changes again after {had:.1f} s")
                assert had < max(needed) + timing.stale_after, "no reading waited for the relay that hangs"
            must_equal((bare, reader), worker, store)
            syncs = [each.syncs() for each in (bare, reader)]
            hanging.send_signal(signal.SIGCONT)
            assert poll(one.is_ready, LONG), "the relay is not ready again"
            must_equal(children, worker, store)
            assert [each.syncs() for each in (bare, reader)] == syncs
            assert all(listens_to(each, two) for each in (bare, reader))
            moves = [each for each in caplog.messages if each.startswith("leaving the parent")]
            assert len(moves) == 2, "each of them left once"
            other.terminate()
            seconds_until_moved(children, one, 0.0)
            must_equal(children, worker, store)
    finally:
        for host in hosts:
            host.close()
