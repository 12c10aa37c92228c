"""A program with typed tables. test_types.py checks it with mypy and pyright; it is never run."""

from typing import Any, assert_type

import msgspec

from pubsub_lib import AsyncReplica, Object, Replica, Settings, Store, Table


class Port(msgspec.Struct):
    switch: str


class Switch(msgspec.Struct):
    name: str


ports = Table("lport", Port)
switches = Table("lswitch", Switch)
assert_type(ports, Table[Port])


def threaded(settings: Settings) -> None:
    replica = Replica(settings, ["t"], tables=[ports, switches])
    assert_type(replica.get(ports, "p1"), Port | None)
    assert_type(replica.get("lport", "p1"), Any)
    record = replica.record(ports, "p1")
    assert_type(record, Object[Port] | None)
    assert record is not None
    assert_type(record.value, Port)
    assert_type(replica.records(ports), list[Object[Port]])
    assert_type(replica.records(), list[Object[Any]])
    for key, port in replica.iterate(ports, on_error="skip"):
        assert_type(key, str)
        assert_type(port, Port)
    replica.add_index("by switch", ports, lambda port: port.switch)
    replica.on([switches, ports], print, order=[switches, "lport"])


async def with_asyncio(settings: Settings) -> None:
    async with AsyncReplica(settings, ["t"], tables=[ports]) as replica:
        assert_type(await replica.get(ports, "p1"), Port | None)
        assert_type(await replica.records(ports), list[Object[Port]])
        assert_type(await replica.iterate(ports), list[tuple[str, Port]])


def stored(settings: Settings) -> None:
    with Store(settings, tables=[ports]) as store:
        assert_type(store.get(ports, "p1"), Port | None)
        with store.transaction() as tx:
            tx.set(ports, "p1", Port("s1"), topic="t")
            assert_type(tx.get(ports, "p1"), Port | None)
