"""A program at a publisher's address sends messages without an end: a controller's memory is bounded, and true changes
are received.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from _processes import free_port, poll

from tests.e2e.service_host import LONG, Host, answer, write
from tests.e2e.test_large_hellos import counted, links
from tests.e2e.test_many_connections import resident
from tests.unit.drivers.zmq.strangers import PART, publisher

BROUGHT: Final = 40 * 2**20
"""Bytes of parts in each connection, unless it is ended."""
MEMORY: Final = BROUGHT // len(PART) * 64 // 2**20
"""MiB that ZeroMQ needs for them: 1,280."""
TIMES: Final = 3
"""The controller connects again, and so often must end the connection."""


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path / "host", sqlite_url, publishers_ips="127.0.0.1,127.0.0.2", replica_metrics_port=free_port())
    yield found
    found.close()


@pytest.mark.slow
def test_messages_without_an_end_take_bounded_memory_and_true_changes_are_received(host: Host) -> None:
    host.service()
    worker, controller = host.worker(), host.controller()
    assert answer(controller) == "synced\n"
    assert controller.stdin is not None
    before, received = resident(controller), links(host)
    port = int(host.settings.bind_address.rpartition(":")[2])
    with publisher(PART, BROUGHT // len(PART), "127.0.0.2", port):
        assert poll(lambda: counted(host, 'driver_total{what="unfinished"}') >= TIMES, LONG), "it was not ended"
        print(write(worker, 5), file=controller.stdin, flush=True)
        assert len(json.loads(answer(controller))) == 5
        assert poll(lambda: links(host) > received, LONG)
    assert 20 < resident(controller, "VmHWM") - before < MEMORY // 2
    assert poll(lambda: resident(controller) - before < 100, LONG), "the memory is returned"
    assert poll(lambda: counted(host, "polling") == 0, LONG)
