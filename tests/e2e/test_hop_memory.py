"""A worker sends faster than its service reads: the default options bound the memory of the service."""

import secrets
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core.envelope import Envelope, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Change, Link, Point
from pubsub_lib.core.reorder_buffer import CHANGE_OVERHEAD
from pubsub_lib.service.reassembly import BUDGET
from pubsub_zmq.multiproc.options import IpcOptions
from pubsub_zmq.multiproc.publisher import SLOT_BYTES, IpcPublisher
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_many_connections import resident

LIMITS = Limits()
PARTS = 1500
"""Of about 0.9 MB each: 1.35 GB, more than twenty times the budget of incomplete runs."""
OPTIONS = IpcOptions()
ALLOCATOR = 60
"""MiB that the allocator keeps of parts that were read, and that the decoded ones take."""
RUNS = BUDGET * (LIMITS.max_transaction_bytes + CHANGE_OVERHEAD * LIMITS.max_transaction_changes)
BOUND = (RUNS + OPTIONS.receive_buffer * SLOT_BYTES + LIMITS.max_frame_bytes) // 2**20 + ALLOCATOR
"""MiB: 211. Without the empty messages between large ones, the service grew by 410 to 670."""


def part(number: int, point: Point) -> Message:
    """A part of a run that has no end."""
    value = b'"' + b"x" * 220_000 + b'"'
    changes = [Change("item", f"k{number}-{each}", "set", point.position, value) for each in range(4)]
    link = Link("t0", Point(1, 1), point, changes, 1, 0, Point(1, 1), 1, "api-1", 0.0)
    return Message(link, number, 2**20)


@pytest.mark.long
def test_large_messages_of_a_worker_take_bounded_memory_and_workers_continue(tmp_path: Path, sqlite_url: str) -> None:
    host = Host(tmp_path / "host", sqlite_url)
    hop = IpcPublisher(tmp_path / "host" / "hop" / "socket", LIMITS, OPTIONS.buffer, LONG, 1.0)
    uuid = secrets.token_hex(16)
    try:
        service, worker = host.service(), host.worker()
        hop.initialize(lambda _: None, lambda: None)
        with Store(host.database) as store, Watched(host.settings) as watched:
            watched.must_come_to(write(worker, 3), store)
            before = resident(service)
            for number in range(1, PARTS + 1):
                run = [part(number, Point(10**9, 7))]
                hop.send_event(Envelope("api-1", uuid, "t0", number, run, None, store.store_id))
            assert poll(lambda: host.metric("receiving_total", "received") >= PARTS, LONG)
            assert host.metric("receiving_total", "incomplete") >= PARTS // 100, "the budget was exceeded each time"
            grown = resident(service, "VmHWM") - before
            assert grown < BOUND
            watched.must_come_to(write(worker, 3), store)
        assert host.is_ready()
    finally:
        hop.close()
        host.close()
