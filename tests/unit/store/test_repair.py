"""Rows that were altered in the database without the library are found, and repaired where that can be proved."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, and_, create_engine, delete, insert, literal, select, update
from sqlalchemy import text as sql

from pubsub_lib.store import Store, repair_plan, schema
from pubsub_lib.store.rows import split
from pubsub_lib.store.verbs import Stored
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import LARGE, Opener

OBJECTS = 320
Damage = Callable[[Connection], object]
C = schema.objects.c
ONE = and_(C.table_name == "port", C.object_key == "k7")


@pytest.fixture
def store(open_store: Opener) -> Store:
    """An open store on an empty database, once on each of the three database systems."""
    return open_store(settings=LARGE)


def fill(store: Store, count: int = OBJECTS, topic: str = "t") -> None:
    for first in range(0, count, 100):
        with store.transaction() as tx:
            for i in range(first, min(first + 100, count)):
                tx.set("port", f"k{i}" if topic == "t" else f"{topic}-{i}", {"n": i}, topic=topic)


def harm(url: str, *damages: Damage) -> None:
    """Change the database without the library."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for damage in damages:
            damage(connection)
    engine.dispose()


def contents(store: Store) -> list[Stored]:
    return list(store.objects())


def value(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(value=b'{"n":"rotten"}'))


def version(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(version=C.version + 5000))


def older_version(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(version=1))


def lost(connection: Connection) -> None:
    connection.execute(delete(schema.objects).where(ONE))


def many_values(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(C.version % 7 == 0).values(value=b"1"))


def many_lost(connection: Connection) -> None:
    connection.execute(delete(schema.objects).where(C.version % 11 == 0))


def print_(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(fp_lo=1, fp_hi=2))


def consistent_value(connection: Connection) -> None:
    """Replace a value together with its fingerprint, like a row copied from another database."""
    other = connection.execute(select(schema.objects).where(C.object_key == "k8")).one()
    row = {"version": other.version, "value": other.value, "fp_lo": other.fp_lo, "fp_hi": other.fp_hi}
    connection.execute(update(schema.objects).where(ONE).values(**row))


def added(connection: Connection) -> None:
    copied = [literal("stranger") if each.name == "object_key" else each for each in C]
    connection.execute(insert(schema.objects).from_select([each.name for each in C], select(*copied).where(ONE)))


def bucket(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(bucket=(C.bucket + 7) % 256))


def topic_row(connection: Connection) -> None:
    connection.execute(delete(schema.topics).where(schema.topics.c.topic == "t"))


def text(connection: Connection) -> None:
    """Write a value as text, as by hand. Only SQLite accepts text in a column of bytes."""
    connection.execute(sql("UPDATE pubsub_objects SET value = CAST(value AS TEXT) WHERE object_key = 'k7'"))


def head(connection: Connection) -> None:
    low, high = split(12345)
    topics = schema.topics
    values: dict[str, Any] = {"digest_lo": low, "digest_hi": high, "count": 3}
    connection.execute(update(topics).where(topics.c.topic == "t").values(values))


DAMAGES = [value, version, older_version, lost, print_, consistent_value, added, head, bucket, topic_row]


def suspects(store: Store, page: int = 250) -> list[Stored]:
    """The altered rows that a walk over all rows finds."""
    found: list[Stored] = []
    after, looked = None, 0
    while True:
        got = store.look_at_rows(after, page)
        found += got.altered
        looked += got.looked
        after = got.behind
        if after is None:
            assert looked == sum(store.inspect.tables().values()), "a row was skipped"
            return found


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_repair_fixes_altered_rows(damage: Damage, store: Store, database_url: str) -> None:
    fill(store)
    fill(store, 30, "other")
    right, heads = contents(store), store.topics()
    assert (suspects(store), store.unfit(["t", "other"])) == ([], [])
    harm(database_url, damage)
    found = suspects(store)
    assert found or store.unfit(["t", "other"]) == ["t"]
    repaired = store.repair("t", [each.ident for each in found])
    assert (repaired.wrong, repaired.left) == (1, False), repaired
    assert repaired.read <= OBJECTS / 100, "of one bucket only the differing objects are read"
    assert (contents(store), store.topics()) == (right, heads)
    assert (suspects(store), store.unfit(["t", "other"])) == ([], [])


def test_repair_fixes_many_altered_rows_at_once(store: Store, database_url: str) -> None:
    fill(store)
    right = contents(store)
    harm(database_url, many_values, many_lost, added)
    found = suspects(store)
    repaired = store.repair("t", [each.ident for each in found])
    assert not repaired.left, repaired
    assert contents(store) == right


@pytest.mark.parametrize("damage", [value, version, lost], ids=lambda each: each.__name__)
def test_repair_needs_only_the_objects_link_in_the_changelog(damage: Damage, store: Store, database_url: str) -> None:
    fill(store)
    with store.transaction() as tx:
        tx.set("port", "k7", {"n": "newer"}, topic="t")
    store.trim(keep_links=1)
    right = contents(store)
    harm(database_url, damage)
    repaired = store.repair("t", [each.ident for each in suspects(store)])
    assert not repaired.left, repaired
    assert contents(store) == right


@pytest.mark.parametrize("damage", [value, version, lost, added, head], ids=lambda each: each.__name__)
def test_repair_reports_damage_that_it_cannot_prove(damage: Damage, store: Store, database_url: str) -> None:
    fill(store)
    with store.transaction() as tx:
        tx.set("port", "k8", {"n": "newer"}, topic="t")
    store.trim(keep_links=1)
    harm(database_url, damage)
    before = contents(store)
    repaired = store.repair("t", [each.ident for each in suspects(store)])
    assert (repaired.repaired, repaired.left) == (0, True)
    assert repaired.wrong == 1
    assert contents(store) == before, "no row is written without a proof"


def test_repair_fixes_fingerprint_by_the_head_without_changelog(store: Store, database_url: str) -> None:
    fill(store)
    right = contents(store)
    store.trim(keep_links=0)
    harm(database_url, print_)
    assert not store.repair("t", [each.ident for each in suspects(store)]).left
    assert contents(store) == right


def test_repair_fixes_head_after_writer_replaced_a_lost_object(store: Store, database_url: str) -> None:
    fill(store)
    harm(database_url, lost)
    with store.transaction() as tx:
        tx.create("port", "k7", {"n": "again"}, topic="t")
    assert store.unfit(["t"]) == ["t"]
    assert not store.repair("t").left
    assert store.unfit(["t"]) == []
    assert store.get("port", "k7") == {"n": "again"}
    with store.transaction() as tx:
        tx.set("port", "k9", {"n": "later"}, topic="t")
    assert store.recount("t") == store.topics()["t"]


def test_repair_does_not_undo_a_concurrent_write(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    fill(store)
    harm(database_url, value)
    found = [each.ident for each in suspects(store)]
    planned = repair_plan.plan

    def plan(*given: Any) -> repair_plan.Plan:
        made = planned(*given)
        if made.fixes:
            with other.transaction() as tx:
                tx.set("port", "k7", {"n": "newest"}, topic="t")
        return made

    monkeypatch.setattr(repair_plan, "plan", plan)
    store.repair("t", found)
    assert store.get("port", "k7") == {"n": "newest"}
    assert store.unfit(["t"]) == []


def test_repair_does_not_change_correct_rows(store: Store) -> None:
    fill(store, 50)
    right = contents(store)
    repaired = store.repair("t")
    assert (repaired.wrong, repaired.repaired, repaired.left) == (0, 0, False)
    assert contents(store) == right
    assert assert_consistent(store) == 1
    assert store.repair("never").wrong == 0


L = schema.links.c


def alter_a_link(connection: Connection) -> None:
    changes = connection.execute(select(L.changes).where(L.position == 3)).scalar_one()
    assert b'{"n":2}' in changes
    altered = changes.replace(b'{"n":2}', b'{"n":9}')
    connection.execute(update(schema.links).where(L.position == 3).values(changes=altered))


HARM_TO_THE_CHANGELOG: dict[str, Damage] = {
    "the tail is lost": lambda connection: connection.execute(delete(schema.links).where(L.position >= 5)),
    "a link is lost": lambda connection: connection.execute(delete(schema.links).where(L.position == 3)),
    "all but the first are lost": lambda connection: connection.execute(delete(schema.links).where(L.position > 1)),
    "a value is altered": alter_a_link,
}


@pytest.mark.parametrize("also", ["row", "head", "fingerprint"])
@pytest.mark.parametrize("harm_to_the_changelog", HARM_TO_THE_CHANGELOG)
def test_repair_deletes_no_correct_object_by_a_damaged_changelog(
    store: Store, database_url: str, harm_to_the_changelog: str, also: str
) -> None:
    for i in range(6):
        with store.transaction() as tx:
            tx.set("port", f"p{i}", {"n": i}, topic="t")
    right = {each.ident: each.value for each in contents(store)}
    first = and_(C.table_name == "port", C.object_key == "p0")
    damages: dict[str, Damage] = {
        "row": lambda connection: connection.execute(delete(schema.objects).where(first)),
        "head": lambda connection: connection.execute(
            update(schema.topics).where(schema.topics.c.topic == "t").values(digest_lo=schema.topics.c.digest_lo + 1)
        ),
        "fingerprint": lambda connection: connection.execute(
            update(schema.objects).where(first).values(fp_lo=C.fp_lo + 1)
        ),
    }
    harm(database_url, HARM_TO_THE_CHANGELOG[harm_to_the_changelog], damages[also])
    store.repair("t", [("port", "p0")])
    found = {each.ident: each.value for each in contents(store)}
    assert found.items() <= right.items()
    assert set(right) - set(found) <= {("port", "p0")}
