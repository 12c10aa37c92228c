"""A worker process of a host with a publisher service. It reads numbers from its input, commits that number of
transactions, and prints the store's position after them. With "fork" or "spawn" before the number, a new child commits
them; with "announce", it prints a line before each commit and waits for one, after which it asks nothing but the
service.
``service_worker.py CONFIG ORIGIN``
"""

import multiprocessing
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from pubsub_lib import Settings, Store, Worker

KEYS = 7


def main(config: Path, origin: str) -> None:
    settings = Settings.from_file(config)
    with Store(settings, origin=origin) as store, Worker(settings, store) as worker:
        print("ready", flush=True)
        for line in sys.stdin:
            *forked, count = line.split()
            if forked == ["spawn"]:
                in_a_spawned_child(config, origin, int(count))
            elif forked == ["fork"]:
                in_a_child(store, worker, int(count))
            else:
                commit(store, int(count), announce=forked == ["announce"])
            print(store.read_heads(()).store.position, flush=True)


def commit(store: Store, count: int, *, announce: bool = False) -> None:
    for _ in range(count):
        step = store.unique_id("step")
        if announce:
            print("commits", flush=True)
            sys.stdin.readline()
        with store.transaction() as tx:
            tx.set("item", f"k{step % KEYS}", step, topic=f"t{step % 2}")


def in_a_child(store: Store, worker: Worker, count: int) -> None:
    """Commit in a forked child, with the store and the worker that its parent has used."""
    child = os.fork()
    if child == 0:
        try:
            commit(store, count)
            hop: Any = worker._hop()._driver
            if hop is not None:  # a service that does not run for a moment is no reason to leave it without messages
                hop._linger = 60.0
            worker.close()
        except BaseException:  # noqa: BLE001 - the child must not continue after this
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def in_a_spawned_child(config: Path, origin: str, count: int) -> None:
    """Commit in a spawned child, which opens its own store and worker, as in a pool of spawned processes."""
    child = multiprocessing.get_context("spawn").Process(target=spawned, args=(config, origin, count))
    child.start()
    child.join()
    assert child.exitcode == 0


def spawned(config: Path, origin: str, count: int) -> None:
    settings = Settings.from_file(config)
    with Store(settings, origin=origin) as store, Worker(settings, store) as worker:
        commit(store, count)
        assert worker.counters()["sent"] == count


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
