"""Makes what watches a publisher's connections by the kernel's counters."""

from collections.abc import Callable

from pubsub_zmq import addresses
from pubsub_zmq.backlog import Backlog
from pubsub_zmq.connection_limit import ConnectionLimit
from pubsub_zmq.inflow_guard import InflowGuard
from pubsub_zmq.reading_progress import ReadingProgress
from pubsub_zmq.sockets import Waker
from pubsub_zmq.unfinished import Unfinished


def guard_of(
    endpoint: str,
    busy_for: Callable[[float], float],
    connections: ConnectionLimit,
    progress: ReadingProgress,
    waker: Waker,
) -> InflowGuard | None:
    """The guard of a publisher's bound address; None for a path, whose connections the kernel cannot pause, and for
    which it has no counters. ``progress`` and ``waker`` are those of the thread that reads the socket.
    """
    port = addresses.port_of(endpoint)
    if not port:
        return None
    unfinished = Unfinished(int(port), progress, connections.counts, waker.wake)
    looks = [unfinished.look]
    guard = InflowGuard(int(port), busy_for, connections.hold, looks)
    looks.append(Backlog(int(port), progress, guard.pause, guard.number_paused, connections.counts).look)
    return guard
