"""The process of one writer: it replays its share of the changes and can be killed at any time.

Its progress is stored in the database, in the same transaction as its changes: its successor continues exactly there.
The server may execute a COMMIT of the killed process after its successor has read the progress. Compare-and-set on the
progress covers this case: the successor's transaction is rejected, and it reads the progress again.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from _routes import data
from _routes.messages import GoOn, Message, Written
from _routes.plan import PROGRESS, SESSION, WriterTask
from pubsub_lib import Settings, Store, Worker
from pubsub_lib.core import values
from pubsub_lib.core.model import Point
from pubsub_lib.errors import OutcomeUnknown, VersionMismatch
from pubsub_lib.store.links import Commit


def run(task: WriterTask, send: Callable[[Message], None]) -> None:
    """Replay the whole share, starting at the progress in the database. Raises PubSubError."""
    share = data.share(data.read(Path(task.changes), task.maximum), task.index, task.of)
    settings = Settings.from_file(task.configuration)
    with Store(settings) as store, handing_over(settings, store):
        done, version = progress(store, task.name)
        resumed_at = done
        updates = _updates(share[:done])
        send(Written(done, len(share), resumed_at))
        allowed = threading.Semaphore(max(0, -(-(len(share) - done) // task.size) - task.held_back))
        threading.Thread(target=_listen, args=(allowed,), daemon=True).start()
        due = time.monotonic()
        while done < len(share):
            allowed.acquire()
            time.sleep(max(0.0, due - time.monotonic()))
            due += task.pause
            part = share[done : done + task.size]
            then = updates + _updates(part)
            try:
                with store.transaction() as tx:
                    for route in part:
                        if route.action == "delete":
                            tx.delete(route.table, route.key, missing_ok=True)
                        else:
                            tx.set(route.table, route.key, route.value, topic=route.topic)
                    for topic in sorted({route.topic for route in part}):
                        tx.set(SESSION, topic, {"updates": then[topic], "writer": task.name}, topic=topic)
                    tx.set(PROGRESS, task.name, {"done": done + len(part)}, topic=PROGRESS, version=version)
            except (VersionMismatch, OutcomeUnknown):
                allowed.release()
                done, version = progress(store, task.name)
                updates = _updates(share[:done])
                continue
            assert tx.commit is not None, "the progress always changes"
            done, version, updates = done + len(part), version_of(tx.commit), then
            send(Written(done, len(share), resumed_at, tx.commit.point))


def _listen(allowed: threading.Semaphore) -> None:
    """Receive commands. stdin ends when the parent was killed; then this process exits, too."""
    for line in sys.stdin:
        allowed.release(msgspec.json.decode(line, type=GoOn).transactions)
    os._exit(1)


def handing_over(settings: Settings, store: Store) -> AbstractContextManager[object]:
    """Hand commits over to the host's service during the block; does nothing without a service."""
    return Worker(settings, store) if settings.multiproc_driver else nullcontext()


def committed_after(store: Store, name: str, reported: Point) -> int:
    """Number of changes that a writer committed after its last reported transaction. Blocks; raises StoreError."""
    links, _, _ = store.read_links(reported, 10_000)
    mine = {
        link.point for link in links if link.topic == PROGRESS and any(change.key == name for change in link.changes)
    }
    return sum(len(link.changes) for link in links if link.point in mine)


def progress(store: Store, name: str) -> tuple[int, int]:
    """The number of committed lines, and the version of the progress object (0: it does not exist yet)."""
    record = store.get_record(PROGRESS, name)
    return (0, 0) if record is None else (values.decode(record.value)["done"], record.version)


def _updates(routes: Sequence[data.Route]) -> Counter[str]:
    return Counter(route.topic for route in routes)


def version_of(commit: Commit) -> int:
    (change,) = next(link.changes for link in commit.links if link.topic == PROGRESS)
    return change.version
