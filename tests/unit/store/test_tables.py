"""Typed tables: checked before anything is written, decoded on reading."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.table import Table
from pubsub_lib.errors import ConfigError, InvalidValueError
from pubsub_lib.store.tables import Tables
from tests.unit.store.conftest import Opener


class Port(msgspec.Struct, kw_only=True):
    switch: str
    number: Annotated[int, msgspec.Meta(ge=1)] = 1
    since: datetime | None = None


TYPES: dict[str, type[Any]] = {"lport": Port, "free": dict}


def test_struct_round_trips(open_store: Opener) -> None:
    store = open_store(tables=TYPES)
    port = Port(switch="s1", since=datetime(2020, 1, 2, tzinfo=UTC))
    with store.transaction() as tx:
        tx.set("lport", "p1", port)
        tx.set("lport", "p2", {"switch": "s2"})
        tx.set("free", "x", {"any": 1})
        assert tx.get("lport", "p1") == port
    assert store.get("lport", "p1") == port
    assert store.get("lport", "p2") == Port(switch="s2")
    assert store.get("free", "x") == {"any": 1}
    record = store.get_record("lport", "p2")
    assert record is not None
    assert record.value == b'{"number":1,"since":null,"switch":"s2"}'
    with store.transaction() as tx:
        tx.update("lport", "p2", {"number": 7})
    assert store.get("lport", "p2") == Port(switch="s2", number=7)


@pytest.mark.parametrize("value", [{}, {"switch": 1}, {"switch": "s", "number": 0}, 3, [], Limits(), {1: 2}])
def test_value_of_a_wrong_type_is_rejected_at_once(value: object, open_store: Opener) -> None:
    store = open_store(tables=TYPES)
    with pytest.raises(InvalidValueError, match="lport"), store.transaction() as tx:
        tx.set("free", "x", {})
        tx.set("lport", "p1", value)
    assert store.get("free", "x") is None


def test_merged_update_is_checked_against_the_type(open_store: Opener) -> None:
    store = open_store(tables=TYPES)
    with store.transaction() as tx:
        tx.set("lport", "p1", Port(switch="s1"))
    for patch in ({"number": 0}, {"switch": None}):
        with pytest.raises(InvalidValueError, match="does not fit Port"), store.transaction() as tx:
            tx.update("lport", "p1", patch)
    with pytest.raises(InvalidValueError, match="mapping"), store.transaction() as tx:
        tx.update("lport", "p1", 5)
    assert store.get("lport", "p1") == Port(switch="s1")


def test_undeclared_table_is_rejected_where_some_are_declared(open_store: Opener) -> None:
    store = open_store(tables=TYPES)
    with (
        pytest.raises(InvalidValueError, match="'lprot' is not declared; the declared tables are free, lport"),
        store.transaction() as tx,
    ):
        tx.set("lprot", "p1", {})
    with pytest.raises(InvalidValueError, match="lprot"):
        store.get("lprot", "p1")


def test_stored_value_of_a_wrong_type_raises_on_reading(open_store: Opener) -> None:
    with open_store().transaction() as tx:
        tx.set("lport", "p1", {"switch": 5})
    with pytest.raises(InvalidValueError, match="stored value"):
        open_store(tables=TYPES).get("lport", "p1")


class Shut(msgspec.Struct, tag="shut"):
    pass


class Opened(msgspec.Struct, tag="opened"):
    by: str


def test_union_of_tagged_structs_names_what_does_not_fit() -> None:
    tables = Tables([Table("door", Shut | Opened)], Limits())  # type: ignore[arg-type]
    assert tables.decode("door", tables.encode("door", Opened("me"))) == Opened("me")
    with pytest.raises(InvalidValueError, match=r"value of the table 'door' does not fit .*Shut \| .*Opened"):
        tables.encode("door", {"type": "broken"})
    with pytest.raises(InvalidValueError, match=r"stored value of the table 'door' does not fit .*Shut \| .*Opened"):
        tables.decode("door", b"{}")


@pytest.mark.parametrize("data", [b'"\xff"', b"[" * 10_000], ids=["no UTF-8", "deep"])
def test_damaged_value_of_a_typed_table_is_an_error_of_this_library(data: bytes) -> None:
    with pytest.raises(InvalidValueError, match="stored value"):
        Tables({"t": list}, Limits()).decode("t", data)


def test_undecodable_type_is_rejected() -> None:
    with pytest.raises(ConfigError, match="lport"):
        Tables({"lport": list[int] | set[int]}, Limits())  # type: ignore[arg-type]


def test_untyped_table_accepts_a_struct_as_plain_data() -> None:
    assert Tables({}, Limits()).encode("t", Port(switch="s")) == b'{"number":1,"since":null,"switch":"s"}'


PORTS = Table("lport", Port)


def test_table_handle_works_in_every_verb(open_store: Opener) -> None:
    store = open_store(tables=[PORTS])
    seen: list[str] = []
    remove = store.before_write(lambda write: seen.append(write.key), table=PORTS)
    with store.transaction() as tx:
        tx.create(PORTS, "p1", Port(switch="s1"))
        tx.set(PORTS, "p2", Port(switch="s2"))
        tx.set(PORTS, "p3", Port(switch="s3"))
        tx.update(PORTS, "p2", {"number": 7})
        assert tx.get(PORTS, "p2") == tx.get("lport", "p2") == Port(switch="s2", number=7)
    remove()
    with store.transaction() as tx:
        tx.delete(PORTS, "p3")
    assert seen == ["p1", "p2", "p3"]
    assert store.get(PORTS, "p2") == store.get("lport", "p2") == Port(switch="s2", number=7)
    assert store.get(PORTS, "p3") is None
    assert [each.key for each in store.objects(table=PORTS)] == ["p1", "p2"]
    record = store.get_record(PORTS, "p1")
    assert record is not None
    assert record.table == "lport"


def test_undeclared_table_handle_is_rejected(open_store: Opener) -> None:
    for store in (open_store(), open_store(tables={"lport": dict})):
        with pytest.raises(InvalidValueError, match="'lport' is not declared with the type Port"):
            store.get(PORTS, "p1")
        with store.transaction() as tx:
            with pytest.raises(InvalidValueError, match="'lport' is not declared with the type Port"):
                tx.set(PORTS, "p1", Port(switch="s1"))
            with pytest.raises(InvalidValueError, match="'lport' is not declared with the type Port"):
                tx.get(PORTS, "p1")
        with pytest.raises(InvalidValueError, match="'lport' is not declared with the type Port"):
            store.before_write(print, table=PORTS)
