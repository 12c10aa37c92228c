"""Checks of a store's consistency after any fault, and functions that start the writer and reader processes."""

import os
import subprocess
import sys
from pathlib import Path

from pubsub_lib.core.model import ALL, ZERO, Delta, Full, Point, Want
from pubsub_lib.store import Store

ROOT = Path(__file__).resolve().parents[2]


def start_writer(database: str, journal: Path, total: int, failpoint: str = "") -> "subprocess.Popen[str]":
    """Start ``store_writer.py`` in another process."""
    environment = {**os.environ, "PUBSUB_LIB_FAILPOINT": failpoint, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name("store_writer.py")), database, str(journal), str(total)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def start_reader(database: str, failpoint: str) -> "subprocess.Popen[str]":
    """Start a process that reads everything, by a full and a delta sync in one snapshot."""
    code = (
        "import sys; from pubsub_lib.store import Store; from pubsub_lib.core.model import ALL, ZERO, Want; "
        "Store(sys.argv[1]).read_sync({ALL: Want(), 'default': Want(after=ZERO)})"
    )
    environment = {**os.environ, "PUBSUB_LIB_FAILPOINT": failpoint, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, database], env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]", status: int = 0) -> None:
    """Wait for the process's end, and show its errors when the exit code is not the expected one."""
    _, errors = process.communicate(timeout=90)
    assert process.returncode == status, errors


def assert_counted(store: Store, total: int) -> None:
    """Check that every step is stored exactly once, and that the store is consistent."""
    assert store.get("count", "n") == total
    assert sorted(each.key for each in store.objects(table="item")) == sorted(f"step-{i + 1}" for i in range(total))
    assert assert_consistent(store) == total


def assert_consistent(store: Store) -> int:
    """Check that positions have no gap, chains are complete, heads equal a recount, and the changelog equals the
    objects. Return the number of transactions."""
    answer = store.read_sync({ALL: Want(after=ZERO)}).chains[ALL]
    assert isinstance(answer, Delta)
    position, tx_prev, tx = 0, ZERO, ZERO
    heads: dict[str, Point] = {}
    replayed: dict[tuple[str, str, str], tuple[int, bytes]] = {}
    transactions = 0
    versions: list[int] = []
    for link in answer.links:
        if link.point != tx:
            assert sorted(versions) == list(range(position + 1, tx.position + 1))
            position, tx_prev, tx, versions, transactions = tx.position, tx, link.point, [], transactions + 1
        assert link.tx_prev == tx_prev
        assert link.prev == heads.get(link.topic, ZERO)
        heads[link.topic] = link.point
        for change in link.changes:
            versions.append(change.version)
            if change.value is None:
                del replayed[link.topic, change.table, change.key]
            else:
                replayed[link.topic, change.table, change.key] = (change.version, change.value)
    assert sorted(versions) == list(range(position + 1, tx.position + 1))
    assert answer.head == tx
    assert {(o.topic, o.table, o.key): (o.version, o.value) for o in store.objects()} == replayed
    full = store.read_sync({ALL: Want()}).chains[ALL]
    assert isinstance(full, Full)
    for topic, snapshot in full.topics.items():
        assert snapshot.head.point == heads[topic]
        assert store.recount(topic) == snapshot.head
    return transactions
