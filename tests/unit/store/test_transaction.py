"""Recording of verbs: encoding and checks at once, and the results of reads."""

from typing import Any

import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import AlreadyExists, ClosedError, InvalidValueError
from pubsub_lib.store.store import Block
from pubsub_lib.store.tables import Tables
from pubsub_lib.store.transaction import Transaction
from pubsub_lib.store.verbs import Stored


class World:
    """Objects to read, with a counter of reads."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Stored] = {}
        self.reads = 0

    def read(self, table: str, key: str) -> Stored | None:
        self.reads += 1
        return self.objects.get((table, key))

    def transaction(self) -> Transaction:
        return Transaction(Tables({}, Limits()), self.read, 42, "me")


def test_values_are_encoded_when_the_verb_is_called() -> None:
    tx = World().transaction()
    value: dict[str, Any] = {"x": [1]}
    tx.set("t", "k", value)
    value["x"].append(2)
    work = tx._end()
    assert work.operations[0].value == b'{"x":[1]}'
    assert (work.nonce, work.origin) == (42, "me")


def test_transaction_records_reads_with_versions() -> None:
    world = World()
    world.objects["t", "a"] = Stored("t", "a", "x", 7, b"1")
    tx = world.transaction()
    assert (tx.get("t", "a"), tx.get("t", "b")) == (1, None)
    world.objects["t", "a"] = Stored("t", "a", "x", 8, b"2")
    assert tx.get("t", "a") == 1  # one state for the whole transaction
    assert world.reads == 2
    assert tx._end().reads == {("t", "a"): 7, ("t", "b"): 0}


def test_get_raises_when_the_recorded_verbs_cannot_succeed() -> None:
    world = World()
    world.objects["t", "a"] = Stored("t", "a", "x", 7, b"1")
    tx = world.transaction()
    tx.create("t", "a", 2)
    with pytest.raises(AlreadyExists):
        tx.get("t", "a")


@pytest.mark.parametrize("version", [-1, True, 1.0, "1"])
def test_invalid_version_is_rejected(version: Any) -> None:
    with pytest.raises(InvalidValueError, match="version"):
        World().transaction().set("t", "k", 1, version=version)


def test_ended_transaction_records_nothing() -> None:
    tx = World().transaction()
    tx._end()
    for refused in (lambda: tx.set("t", "k", 1), lambda: tx.delete("t", "k"), lambda: tx.get("t", "k")):
        with pytest.raises(ClosedError):
            refused()


def test_block_is_used_once() -> None:
    committed: list[Transaction] = []
    block = Block(World().transaction, committed.append)
    with block as tx:
        with pytest.raises(ClosedError), block:
            pass
        assert committed == []
    with pytest.raises(ClosedError), block:
        pass
    assert committed == [tx]
