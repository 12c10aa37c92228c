"""``pubsub-db verify``: the rows against the head, and the store against a running replica."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from _processes import free_port
from sqlalchemy import create_engine, delete, text, update

from pubsub_lib import Replica
from pubsub_lib.cli.commands.verify import MAX_NAMED, against, compared
from pubsub_lib.cli.replica_client import ReplicaClient
from pubsub_lib.core.model import Point
from pubsub_lib.errors import WaitTimeout
from pubsub_lib.store import schema
from tests.e2e.service_host import LONG
from tests.unit.cli.world import World


@contextmanager
def following(world: World, *topics: str) -> Iterator[tuple[Replica, str]]:
    """A replica, and the URL of its endpoint."""
    port = free_port()
    with Replica(msgspec.structs.replace(world.settings, replica_metrics_port=port), topics or None) as replica:
        replica.wait_synced(LONG)
        yield replica, f"http://127.0.0.1:{port}"


def write(world: World, count: int = 20) -> None:
    with world.open() as store, store.transaction() as tx:
        for number in range(count):
            tx.set("t", f"k{number}", [number, store.read_heads([]).store.position], topic="verified")


def by_hand(world: World, key: str, value: bytes | None) -> None:
    """Change a row without the library, as no program should."""
    objects = schema.objects
    engine = create_engine(world.url)
    with engine.begin() as connection:
        where = objects.c.object_key == key
        connection.execute(
            delete(objects).where(where) if value is None else update(objects).where(where).values(value=value)
        )
    engine.dispose()


def test_verify_of_matching_rows(world: World) -> None:
    write(world)
    found = world.run("verify", "verified", "-f", "json").json
    assert list(found[0].values()) == ["rows: objects", "20", "20", True]
    assert [each["right"] for each in found] == [True, True]
    shown = world.run("verify", "verified")
    assert shown.code == 0
    assert "| rows: digest " in shown.out


def test_verify_names_rows_changed_outside_the_library(fresh: World) -> None:
    write(fresh)
    by_hand(fresh, "k7", b'"by hand"')
    by_hand(fresh, "k8", None)
    output = fresh.run("verify", "verified")
    assert output.code == 1
    assert "rows: t k7 in version 8" in output.out
    assert [line.split("|")[2].strip() for line in output.out.splitlines() if "rows: objects" in line] == ["20"]
    assert [line.split("|")[3].strip() for line in output.out.splitlines() if "rows: objects" in line] == ["19"]


def test_verify_against_an_equal_replica(world: World) -> None:
    write(world)
    with following(world, "verified") as (replica, url):
        found = world.run("verify", "verified", "--against", url, "-f", "json").json
        assert [each["right"] for each in found] == [True] * 4
        assert found[2]["check"].startswith("replica: objects at ")
        entry = replica._engine.read(lambda state: state.cache._topics["verified"].tables["t"]["k3"])
        entry.value = b'"rot"'
        output = world.run("verify", "verified", "--against", url)
        assert output.code == 1
        rotten = next(line for line in output.out.splitlines() if "replica: t k3" in line)
        assert rotten.count(f"version {entry.version}, value ") == 2
        assert "False" in rotten
        asked = world.run("resync", url, "verified")
        assert (asked.code, asked.out) == (0, "")
        assert f"the replica at {url} reads verified again" in asked.err
        until_right(world, url)


def until_right(world: World, url: str) -> None:
    """Wait until the resync has repaired the replica."""
    for _ in range(200):
        if world.run("verify", "verified", "--against", url).code == 0:
            return
    pytest.fail("the replica was not repaired")


def test_verify_of_a_misspelt_topic_fails_also_against_a_replica_of_everything(fresh: World) -> None:
    write(fresh)
    with following(fresh) as (_, url):
        for against_it in ((), ("--against", url)):
            fresh.run("verify", "verfied", *against_it).failed(1, "nothing was ever written to the topic 'verfied'")
        assert fresh.run("verify", "verified", "--against", url).code == 0


def test_verify_compares_replicas_at_their_own_points(fresh: World) -> None:
    write(fresh)
    with following(fresh) as (_, url):
        assert fresh.run("verify", "verified", "--against", url).code == 0
        assert fresh.run("resync", url).code == 0
        until_right(fresh, url)
        with fresh.open() as store:
            behind = ReplicaClient(url)
            earlier = behind.contents("verified")
            write(fresh)
            head = store.topics()["verified"]
            assert earlier.known is not None
            assert earlier.known.position < head.point.position
            # As if the replica were still at the earlier point.
            behind.contents = lambda topic: earlier  # type: ignore[method-assign]
            assert [row[3] for row in against(store, "verified", behind)] == [True, True]
            store.trim(keep_links=0)
            with pytest.raises(WaitTimeout, match=r"position 20, which the changelog has trimmed"):
                against(store, "verified", behind, wait=0.1)


@pytest.mark.quick_variants(2)
@pytest.mark.parametrize("beyond", [0, 1, -20])
def test_verify_names_a_replica_at_a_point_that_was_never_committed(fresh: World, beyond: int) -> None:
    write(fresh)
    write(fresh)
    with following(fresh) as (_, url), fresh.open() as store:
        replica = ReplicaClient(url)
        true = replica.contents("verified")
        assert true.known is not None
        false = Point(true.known.position + beyond, true.known.nonce ^ 1)
        replica.contents = lambda topic: msgspec.structs.replace(true, known=false)  # type: ignore[method-assign]
        (row,) = against(store, "verified", replica, wait=0.1)
        assert row == (f"replica: point at {false.position}", "not in its history", f"{false.nonce:016x}", False)
        answers = iter([msgspec.structs.replace(true, known=false), true])
        replica.contents = lambda topic: next(answers)  # type: ignore[method-assign]
        assert all(row[3] for row in against(store, "verified", replica)), "it noticed meanwhile"


def test_named_differences_are_limited() -> None:
    mine = {("t", f"k{n}"): (n, n) for n in range(3)}
    assert compared(mine, dict(mine)) == []
    theirs = {("t", "k0"): (0, 9), ("t", "k1"): (5, 1), ("t", "new"): (7, 7)}
    assert compared(mine, theirs) == [
        ("replica: t k0", "version 0, value 0000000000000000", "version 0, value 0000000000000009", False),
        ("replica: t k1", "version 1", "version 5", False),
        ("replica: t k2", "version 2", "missing", False),
        ("replica: t new", "missing", "version 7", False),
    ]
    many = compared({("t", f"k{n:04}"): (n, n) for n in range(MAX_NAMED + 5)}, {})
    assert (len(many), many[-1][0]) == (MAX_NAMED + 1, "replica: 5 more objects")


def test_errors(small: World) -> None:
    write(small)
    small.run("verify", "never").failed(1, "nothing was ever written to the topic 'never'")
    small.run("verify", "").failed(2, "topic")
    port = free_port()
    small.run("verify", "verified", "--against", f"127.0.0.1:{port}").failed(3, f"http://127.0.0.1:{port}", "reached")
    small.run("verify", "verified", "--against", "ftp://host:1").failed(2, "'ftp://host:1' is not the URL of a replica")
    with following(small, "other") as (_, url):
        small.run("verify", "verified", "--against", url).failed(
            1, "not subscribed to the topic 'verified'; its topics are", "other"
        )


def test_verify_names_wrong_value_types_buckets_and_missing_topic_rows(small: World) -> None:
    write(small)
    engine = create_engine(small.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE pubsub_objects SET value = CAST(value AS TEXT) WHERE object_key = 'k7'"))
        connection.execute(text("UPDATE pubsub_objects SET bucket = (bucket + 1) % 256 WHERE object_key = 'k8'"))
    output = small.run("verify", "verified", "-f", "json")
    assert output.code == 1
    wrong = [each["found"] for each in json.loads(output.out) if not each["right"]]
    assert "its value is str, not bytes" in wrong
    assert any(each.startswith("its bucket is ") for each in wrong)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM pubsub_topics WHERE topic = 'verified'"))
    output = small.run("verify", "verified", "-f", "json")
    assert output.code == 1, "the topic has objects, so something was written to it"
    assert list(json.loads(output.out)[0].values()) == ["rows: objects", "0", "20", False]
    with engine.begin() as connection:  # other tests use the same database
        connection.execute(text("DELETE FROM pubsub_objects"))
    engine.dispose()
