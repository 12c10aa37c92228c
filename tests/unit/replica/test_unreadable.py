"""Objects that an index or a reader cannot decode are counted, listed and logged (docs/using.md)."""

import logging
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest
from _processes import free_port, poll
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib import Replica, Settings, Store, Table
from pubsub_lib.core.index import Index, IndexStatus
from pubsub_lib.core.objects import Object
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.errors import InvalidValueError, UsageError
from pubsub_lib.replica import unreadable
from pubsub_lib.replica.fault_log import FaultLog
from pubsub_lib.replica.unreadable import Unreadable
from tests.unit.world import settings

LONG: Final = 60.0


class Port(msgspec.Struct):
    mac: str
    zone: str  # a field that objects of the previous version do not have


PORTS: Final = Table("lport", Port)
OLD, NEW = {"mac": "AA"}, {"mac": "BB", "zone": "z1"}


ERROR: Final = InvalidValueError("x" * 1_000)


class Held:
    """The versions of a replica's objects, in place of its state. An object's name is its table and its key."""

    def __init__(self, **versions: int) -> None:
        self.versions = versions
        self.looks = 0
        self.cache: Any = SimpleNamespace(record=self._record)

    def found(self, name: str) -> Object[object]:
        return Object(name[0], name[1], "t", self.versions[name], b"1", lambda each: None)

    def read(self, look: Callable[[ReplicaState], object]) -> object:
        self.looks += 1
        state: Any = SimpleNamespace(cache=self.cache)
        return look(state)

    def _record(self, table: str, key: str) -> Object[object] | None:
        return self.found(table + key) if table + key in self.versions else None


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    return settings(sqlite_url, driver="db_polling_pubsub_driver", driver_options={})


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config) as store:
        with store.transaction() as tx:
            for key in ("old1", "old2", "old3"):
                tx.set("lport", key, OLD, topic="t")
            tx.set("lport", "new", NEW, topic="t")
        yield store


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def rewrite(store: Store, replica: Replica, **objects: Any) -> None:
    with store.transaction() as tx:
        for key, value in objects.items():
            tx.set("lport", key, value, topic="t")
    replica.wait_for(tx.commit, LONG)


def test_objects_that_an_index_leaves_out_are_counted_named_and_logged_once(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with Replica(config, ["t"]) as replica:
        replica.wait_synced(LONG)
        rewrite(store, replica, null={"mac": None})
        replica.add_index("by mac", "lport", lambda value: value["mac"].lower())
        assert sorted(key for key, _ in replica.lookup("by mac", "aa")) == ["old1", "old2", "old3"]
        status = replica.status().indexes["by mac"]
        assert (status.table, status.left_out, status.failures) == ("lport", 1, 1)
        assert list(status.examples) == ["null"]
        assert status.examples["null"].startswith("AttributeError")
        (line,) = lines(caplog)
        assert line.startswith("the index 'by mac' leaves out 1 objects of the table 'lport', for example 'null' (Attr")
        for number in range(5):
            rewrite(store, replica, null={"mac": None, "n": number})
            assert replica.lookup("by mac", None) == []
        assert replica.status().indexes["by mac"].failures == 6
        assert lines(caplog) == [line], "one line, however often it fails"
        rewrite(store, replica, null={"mac": "DD"})
        assert replica.status().indexes["by mac"].left_out == 0
        assert [key for key, _ in replica.lookup("by mac", "dd")] == ["null"]


def test_an_index_that_raises_system_exit_stops_neither_syncs_nor_handlers(config: Settings, store: Store) -> None:
    def by_mac(value: Any) -> object:
        if value == OLD:
            raise SystemExit("a value of an old release")
        return value["mac"]

    replica = Replica(config, ["t"])
    replica.add_index("by mac", "lport", by_mac)
    handled = list[str]()
    replica.on("lport", lambda change: handled.append(change.key))
    with replica:
        replica.wait_synced(LONG)
        assert sorted(handled) == ["new", "old1", "old2", "old3"]
        rewrite(store, replica, old1=NEW)
        assert sorted(key for key, _ in replica.lookup("by mac", "BB")) == ["new", "old1"]
        assert replica.status().indexes["by mac"].left_out == 2
        with pytest.raises(SystemExit):  # the caller's own thread is free to end
            replica.add_index("again", "lport", by_mac)


def test_an_object_that_an_index_leaves_out_later_is_logged_then(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    look = FaultLog.new_incomplete

    def counted(log: FaultLog, indexes: Collection[Index]) -> Mapping[str, IndexStatus]:
        nonlocal seen
        seen += 1
        return look(log, indexes)

    def look_twice() -> None:
        """Wait for the begin of the second look from now on: the first one was then logged, by the same thread."""
        before = seen
        assert poll(lambda: seen >= before + 2, LONG)

    monkeypatch.setattr(FaultLog, "new_incomplete", counted)
    with Replica(config, ["t"]) as replica:
        replica.add_index("by mac", "lport", lambda value: value["mac"].lower())
        replica.wait_synced(LONG)
        assert replica.status().indexes["by mac"].left_out == 0
        for expected in (1, 2):  # again, after the index was complete meanwhile
            rewrite(store, replica, odd=7)
            look_twice()
            assert len(lines(caplog)) == expected
            rewrite(store, replica, odd=NEW)
            look_twice()


def test_an_object_that_does_not_fit_its_type_is_listed_after_a_read(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with Replica(config, ["t"], tables=[PORTS]) as replica:
        replica.wait_synced(LONG)
        assert replica.status().unreadable == ()
        for _ in range(3):
            with pytest.raises(InvalidValueError, match="lport 'old1' cannot be decoded"):
                replica.get(PORTS, "old1")
        (found,) = replica.status().unreadable
        assert (found.topic, found.table, found.key, found.version) == ("t", "lport", "old1", 1)
        assert "zone" in found.error
        assert replica.status().unreadable_reads == 3
        assert replica.status().ready, "one object that was written by hand must not make a controller unready"
        rewrite(store, replica, old1=NEW)
        assert replica.status().unreadable == ()
        assert replica.get(PORTS, "old1") == Port("BB", "z1")
        (line,) = lines(caplog)
        assert line.startswith("the value of lport 'old1' cannot be decoded")


def test_iterate_raises_for_or_skips_an_unreadable_object(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with Replica(config, ["t"], tables=[PORTS]) as replica:
        replica.wait_synced(LONG)
        with pytest.raises(InvalidValueError, match="cannot be decoded"):
            list(replica.iterate(PORTS))
        assert list(replica.iterate(PORTS, on_error="skip")) == [("new", Port("BB", "z1"))]
        assert sorted(each.key for each in replica.status().unreadable) == ["old1", "old2", "old3"]
        assert len(lines(caplog)) == 1, "one line for the table, not one for each failed read"
        word: Any = "ignore"
        with pytest.raises(UsageError, match="on_error must be 'raise' or 'skip', not 'ignore'"):
            replica.iterate(PORTS, on_error=word)


def test_records_returns_an_unreadable_object_whose_value_raises(config: Settings, store: Store) -> None:
    with Replica(config, ["t"], tables=[PORTS]) as replica:
        replica.wait_synced(LONG)
        found = {each.key: each for each in replica.records(PORTS)}
        assert found["new"].value == replica.get(PORTS, "new") == Port("BB", "z1")
        assert (found["old1"].topic, found["old1"].version, found["old1"].json) == ("t", 1, b'{"mac":"AA"}')
        with pytest.raises(InvalidValueError):
            _ = found["old1"].value
        assert [each.key for each in replica.status().unreadable] == ["old1"]


def test_metrics_count_unreadable_and_left_out_objects(config: Settings, store: Store) -> None:
    served = msgspec.structs.replace(config, replica_metrics_port=free_port())
    with Replica(served, ["t"], tables=[PORTS]) as replica:
        replica.wait_synced(LONG)
        replica.add_index("by zone", PORTS, "zone")
        assert [key for key, _ in replica.lookup("by zone", "z1")] == ["new"]
        list(replica.iterate(PORTS, on_error="skip"))
        with urllib.request.urlopen(f"http://127.0.0.1:{served.replica_metrics_port}/metrics", timeout=LONG) as answer:
            text = answer.read().decode()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["pubsub_replica_index_left_out_objects", "by zone"] == 3.0
    assert found["pubsub_replica_index_failures_total", "by zone"] == 3.0
    assert found["pubsub_replica_unreadable_objects", "lport"] == 3.0
    assert found["pubsub_replica_unreadable_reads_total",] == 3.0


def test_the_list_of_unreadable_objects_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unreadable, "MAX_KEPT", 2)
    seen = Unreadable()
    held = Held(a1=1, a2=1, a3=1, b1=1)
    for ident in held.versions:
        seen.note(held.found(ident), ERROR, held.read)
    assert seen.reads == 4
    assert [(each.table, each.key, len(each.error)) for each in seen.current(held.cache)] == [
        ("a", "1", unreadable.MAX_TEXT), ("a", "2", unreadable.MAX_TEXT),
    ]  # fmt: skip
    assert len(lines(caplog)) == 2, "one line for each table, also when its objects are not listed"
    held.versions["a1"] = 2
    del held.versions["a2"]
    assert seen.current(held.cache) == ()
    seen.note(held.found("a1"), ERROR, held.read)
    seen.note(held.found("b1"), ERROR, held.read)
    assert [each.version for each in seen.current(held.cache)] == [2, 1]
    assert len(lines(caplog)) == 3, "the table a was readable meanwhile"


def test_unreadable_object_is_logged_and_listed_after_others_were_written_although_no_status_was_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unreadable, "MAX_KEPT", 2)
    now = [0.0]
    seen = Unreadable(lambda: now[0])
    held = Held(a1=1, a2=1, a3=1, b1=1, c1=1)
    seen.note(held.found("a1"), ERROR, held.read)
    held.versions["a1"] = 2
    seen.note(held.found("a2"), ERROR, held.read)
    assert len(lines(caplog)) == 2, "all objects of the table a fitted meanwhile"
    seen.note(held.found("b1"), ERROR, held.read)
    held.versions |= {"a2": 2, "b1": 2}
    looks = held.looks
    for key in "a3", "c1", "a3":
        seen.note(held.found(key), ERROR, held.read)
    assert held.looks == looks, "many failed reads do not look each time"
    now[0] += unreadable.LOOK_INTERVAL
    for key in "a3", "c1", "a3":
        seen.note(held.found(key), ERROR, held.read)
    assert held.looks == looks + 1
    assert [each.key for each in seen.current(held.cache)] == ["3", "1"], "the others make room for them"
