"""The process of one replica: it follows, reports its figures twice a second, and can be killed."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from _routes import dump
from _routes.replica import Watch, sabotage

from _chaos.messages import Finish, Finished, Followed, Message, Order, Ready, ReplicaTask
from _chaos.plan import DATABASE, FALSE
from _chaos.rollbacks import Rollbacks
from pubsub_lib import Event, Replica, Settings
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Record
from pubsub_lib.errors import WaitTimeout

REPORT = 0.5
"""Seconds between two reports."""
SAMPLE = 0.1
"""Seconds between two looks at the staleness."""


class Figures:
    """The handler, and the figures of this process. The thread of the handler counts, another one reads."""

    def __init__(self) -> None:
        self._watch = Watch(lambda _: None)
        self._rollbacks = Rollbacks()
        self._undone = 0
        self.history_changed = self._rollbacks.history_changed
        self._staleness = 0.0
        self._latency = 0.0
        self._lies = 0
        self._messages: Counter[str] = Counter()
        self._polling = True

    def __call__(self, event: Event) -> None:
        """Count one change. A false one may have the version of a true one."""
        if event.table == FALSE:
            self._lies += 1
            return
        before = self._watch.twice
        self._watch(event)
        if self._rollbacks.explains(event):
            self._undone += self._watch.twice - before
        if event.written_at:
            _, latency = self._watch.latencies[-1]
            self._latency = max(self._latency, latency)

    def received(self, envelope: Envelope) -> None:
        """Count an envelope of the transport. A hello does not count: it has no links."""
        if envelope.messages:
            self._messages[envelope.service] += 1

    def look(self, staleness: float, *, polling: bool, notifications: int = 0) -> None:
        """Note the staleness of the replica, which is infinite before the first sync, whether it polls, and how often
        the database notified it.
        """
        self._polling = polling
        if notifications:
            self._messages[DATABASE] = notifications
        if math.isfinite(staleness):
            self._staleness = max(self._staleness, staleness)

    @property
    def message(self) -> Followed:
        """The figures so far."""
        watch = self._watch
        return Followed(
            len(watch.latencies), watch.calls, watch.twice - self._undone, self._staleness, self._latency,
            dict(self._messages), self._polling, self._lies, self._undone,
        )  # fmt: skip


def count_messages(replica: Replica, figures: Figures) -> None:
    """Let ``figures`` count what the transport delivers. Call it before the replica is started.

    The library has no interface for this: ``status()`` counts hellos as well, and a handler is also called for what a
    delta brings. So the tool uses its private attributes.
    """
    engine = replica._engine
    receive = engine.on_envelope

    def counted(envelope: Envelope) -> None:
        figures.received(envelope)
        receive(envelope)

    engine.on_envelope = counted  # type: ignore[method-assign]


def run(task: ReplicaTask, send: Callable[[Message], None], receive: Callable[[], Order | None]) -> None:
    """Follow until ``Finish`` is received or the parent has ended. Raises PubSubError, OSError for a full disk."""
    figures = Figures()
    settings = msgspec.structs.replace(Settings.from_file(task.configuration), replica_name=task.name)
    replica = Replica(settings, task.topics or None)
    count_messages(replica, figures)
    with replica:
        replica.on(None, figures, on_history_changed=figures.history_changed)
        ended = threading.Event()
        reporting = threading.Thread(target=_report, args=(replica, figures, send, ended), daemon=True)
        reporting.start()
        order = receive()
        ended.set()
        reporting.join()
        if isinstance(order, Finish):
            _finish(task, replica, figures, order, send)


def _report(replica: Replica, figures: Figures, send: Callable[[Message], None], ended: threading.Event) -> None:
    ready, due = False, time.monotonic()
    while not ended.wait(SAMPLE):
        _look(replica, figures)
        if not ready and replica.synced:
            ready = True
            send(Ready())
        if time.monotonic() >= due:
            due = time.monotonic() + REPORT
            send(figures.message)


def _look(replica: Replica, figures: Figures) -> None:
    status = replica.status()
    figures.look(
        replica.staleness(), polling=status.polling, notifications=status.driver.get("notifications", 0)
    )  # fmt: skip


def _finish(
    task: ReplicaTask, replica: Replica, figures: Figures, order: Finish, send: Callable[[Message], None]
) -> None:
    late = ""
    try:
        replica.wait_handled(order.position, order.timeout)
    except WaitTimeout as error:
        late = str(error)
    sabotaged = sabotage(replica) if task.sabotage else None
    records = [Record(each.table, each.key, each.version, each.json) for each in replica.records()]
    dump.write(Path(order.dump), records)
    _look(replica, figures)
    send(figures.message)
    send(Finished(len(records), late, sabotaged))
