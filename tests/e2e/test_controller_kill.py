"""A controller killed during a full sync, during a delta, and in a handler: other processes are not disturbed, and the
restarted controller needs one full sync.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.warm_start import Running

QUICK: dict[str, Any] = {"max_idle_time": 0.5, "reading_age": 0.3, "round_trip": 0.3, "poll_interval": 0.2}


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    host = Host(tmp_path, sqlite_url, **QUICK)
    yield host
    host.close()


def next_line(controller: Running) -> str:
    assert controller.stdout is not None
    return controller.stdout.readline()


def must_hold(controller: Running, position: int, store: Store) -> None:
    """Check that the controller reaches the position and equals the database there."""
    assert controller.stdin is not None
    controller.stdin.write(f"{position}\n")
    controller.stdin.flush()
    held = json.loads(next_line(controller))
    assert held == {record.key: [record.version, record.value.decode()] for record in store.objects(table="item")}


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(
    "failpoint", ["sync.during_snapshot=kill", "sync.during_delta=kill", "replica.in_handler=kill@10"]
)
def test_killed_controller_restarts_with_one_full_sync(failpoint: str, host: Host, store: Store) -> None:
    service = host.service()
    worker = host.worker()
    write(worker, 5)
    with Watched(host.settings) as other:
        victim = host.controller(failpoint)
        if failpoint.startswith("sync.during_snapshot"):
            assert victim.wait(LONG) == -signal.SIGKILL
        elif failpoint.startswith("sync.during_delta"):
            assert next_line(victim) == "synced\n"
            service.kill()  # commits from now on are not sent, so the controller needs a delta
            service.wait(LONG)
            write(worker, 5)
            assert victim.wait(LONG) == -signal.SIGKILL
            host.service()
        else:
            assert next_line(victim) == "synced\n"
            while victim.poll() is None:  # a slow handler gets fewer events than changes
                write(worker, 5)
            assert victim.returncode == -signal.SIGKILL
        last = write(worker, 5)
        other.must_come_to(last, store)
        back = host.controller()
        assert next_line(back) == "synced\n"
        must_hold(back, last, store)
        must_hold(back, write(worker, 5), store)
