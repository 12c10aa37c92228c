"""A real replica in a separate process, and the check of its contents at the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from _children import Line

from _bench.measure import BenchError
from _bench.payload import Plan
from _bench.store import DirectoryStore, PlannedStore
from pubsub_lib import Replica, Settings, Timing
from pubsub_lib.errors import WaitTimeout

LOOK = 0.01
"""Seconds between two polls of the replica while it applies; this is the error of a measured time."""
NO_HWM = 1_000_000
"""Maximum number of queued frames at both ends: no message of a burst may be dropped at a high-water mark."""
TIMING = Timing(max_idle_time=60.0, message_delay_window=30.0, sync_jitter=0.0, hello_wait=5.0)
"""No hello during a burst, and one hello at its begin, which proves that the subscription has arrived."""


def settings(port: int, hop: Path | None = None) -> Settings:
    """Settings of all processes of a round: the ZeroMQ driver, and the hop to a service when its socket is named."""
    return Settings(
        store_url="sqlite:////nowhere/bench.db",  # never opened: each process gets a store
        driver="zmq_pubsub_driver",
        service_name="bench",
        timing=TIMING,
        driver_options={"send_hwm": NO_HWM, "receive_hwm": NO_HWM, "receive_bytes": 2**40},
        addresses=(f"tcp://127.0.0.1:{port}",),
        bind_address=f"tcp://127.0.0.1:{port}",
        multiproc_driver="zmq_pubsub_multiproc_driver" if hop is not None else "",
        multiproc_socket=str(hop) if hop is not None else "",
        multiproc_options={"full_wait": 0.9} if hop is not None else {},
    )


class Sides(msgspec.Struct, frozen=True):
    """How both sides differ from :func:`settings`. ``database``: the URL of the directory and the clients."""

    change: Callable[[Settings], Settings] = lambda settings: settings
    database: str = ""

    @contextmanager
    def planned(self, plans: Sequence[Plan]) -> Iterator[PlannedStore | DirectoryStore]:
        """The store of one process."""
        if not self.database:
            yield PlannedStore(plans)
            return
        with closing(DirectoryStore(self.database, plans)) as store:
            yield store


PLAIN = Sides()


def started(replica: Replica) -> None:
    """Wait until the replica is synced and its subscriptions have arrived, which a hello reply proves."""
    replica.wait_synced(60.0)
    while not replica.status().driver["received"]:
        time.sleep(LOOK)


def arrived(replica: Replica, plan: Plan) -> bool:
    """Whether the plan's last change is applied. It takes only a few µs, because polling slows down the replica."""
    try:
        replica.wait_for(plan.end.point.position, 0.0, topics=[plan.topic])
    except WaitTimeout:
        return False
    return True


def replicate(line: Line, port: int, plans: Sequence[Plan], sides: Sides = PLAIN) -> None:
    """Follow the plans' topics to their ends. Sends the time of the last change, then the end of the check."""
    topics = [plan.topic for plan in plans]
    with sides.planned(plans) as store, Replica(sides.change(settings(port)), topics, store=store) as replica:
        started(replica)
        line.send()
        store.commit()
        for plan in plans:
            while not arrived(replica, plan):
                time.sleep(LOOK)
        line.send(time.monotonic())
        check(replica, plans)
        line.send()


def check(replica: Replica, plans: Sequence[Plan]) -> None:
    """Raises BenchError when the replica's contents differ from the plans', or when it did not only use messages."""
    state = {(each.table, each.key): (each.version, each.json) for each in replica.records()}
    expected: dict[tuple[str, str], tuple[int, bytes]] = {}
    for plan in plans:
        expected.update(plan.expected())
    if state != expected:
        raise BenchError(f"the replica ended with {len(state)} objects that differ from the {len(expected)} expected")
    status = replica.status()
    if status.faults.guarded or status.faults.mismatches or status.sequences.holes or status.last_error:
        raise BenchError(f"the replica counted faults: {status.faults}, {status.sequences}, {status.last_error}")
