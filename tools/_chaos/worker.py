"""The process of one worker: it commits random transactions, hands them over to its service, and can be killed.

Each transaction also sets the number of the worker's transactions in the database, by compare-and-set. So its successor
continues where it was, and a commit that was acknowledged and then lost shows at the end.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from _routes.plan import PROGRESS
from _routes.writer import progress, version_of

from _chaos.messages import Message, Order, Ready, Stop, WorkerTask, Wrote
from pubsub_lib import Settings, Store, Worker
from pubsub_lib.errors import StoreError

TABLE = "item"
RETRY = 0.2
"""Seconds until a worker tries again after an error of the database."""
DELETED, MOVED = 0.15, 0.03
"""Share of changes that delete an object, and that set it on another topic."""


class Choices:
    """The random changes of a worker. No I/O."""

    def __init__(self, task: WorkerTask) -> None:
        self._rng = random.Random(f"chaos worker {task.seed}")
        self._task = task

    def record(self, tx: Any, number: int) -> None:
        """Record the changes of one transaction."""
        task, rng = self._task, self._rng
        for chosen in rng.sample(range(task.keys), min(task.size, task.keys)):
            key = f"k{chosen}"
            if rng.random() < DELETED:
                tx.delete(TABLE, key, missing_ok=True)
                continue
            moved = rng.randrange(len(task.topics)) if rng.random() < MOVED else 0
            topic = task.topics[(chosen + moved) % len(task.topics)]
            tx.set(TABLE, key, {"by": task.name, "number": number, "random": rng.getrandbits(32)}, topic=topic)


def run(task: WorkerTask, send: Callable[[Message], None], receive: Callable[[], Order | None]) -> None:
    """Commit until ``Stop`` is received. Raises PubSubError when the store or the worker cannot be opened."""
    settings = Settings.from_file(task.configuration)
    stop = threading.Event()

    def listen() -> None:
        if isinstance(receive(), Stop):
            stop.set()

    threading.Thread(target=listen, daemon=True).start()
    with Store(settings) as store, Worker(settings, store):
        send(Ready())
        _commit(task, store, send, stop)


def _commit(task: WorkerTask, store: Store, send: Callable[[Message], None], stop: threading.Event) -> None:
    choices = Choices(task)
    changes = failed = done = version = 0
    known = False
    due = time.monotonic()
    while not stop.wait(max(0.0, due - time.monotonic())):
        try:
            if not known:
                done, version = progress(store, task.name)
                known = True
            with store.transaction() as tx:
                choices.record(tx, done + 1)
                tx.set(PROGRESS, task.name, {"done": done + 1}, topic=PROGRESS, version=version)
        except StoreError:  # also VersionMismatch: the COMMIT of a killed process came late
            failed += 1
            known = False
            due = time.monotonic() + RETRY
        else:
            assert tx.commit is not None, "the number always changes"
            done, version = done + 1, version_of(tx.commit)
            changes += sum(len(link.changes) for link in tx.commit.links)
            # After a fault it continues at its pace: a burst would only make the machine late.
            due = max(due + task.pause, time.monotonic())
        send(Wrote(done, changes, failed))
