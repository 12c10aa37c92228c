"""Checks of a store's consistency after any fault, and functions that start the writer and reader processes."""

from pathlib import Path

from pubsub_lib.core.model import ALL, ZERO, Delta, Full, Point, Want
from pubsub_lib.failpoints import VARIABLE
from pubsub_lib.store import Store
from tests.e2e.warm_start import Running, WarmProcess

ROOT = Path(__file__).resolve().parents[2]


def start_writer(database: str, journal: Path, total: int, failpoint: str = "") -> Running:
    """Start ``store_writer.py`` in another process."""
    arguments = [str(Path(__file__).with_name("store_writer.py")), database, str(journal), str(total)]
    return WarmProcess(arguments, {VARIABLE: failpoint})


def start_reader(database: str, failpoint: str) -> Running:
    """Start a process that reads everything, by a full and a delta sync in one snapshot."""
    arguments = [str(Path(__file__).with_name("store_reader.py")), database]
    return WarmProcess(arguments, {VARIABLE: failpoint})


def finish(process: Running, status: int = 0) -> None:
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
