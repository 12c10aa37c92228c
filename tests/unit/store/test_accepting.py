"""Accepts the current rows of a topic where the changelog proves no right values; replicas can follow."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection, delete, insert, literal, select, update
from sqlalchemy import text as sql

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Delta, Link, Want
from pubsub_lib.errors import NotFound
from pubsub_lib.store import Store, schema
from tests.unit.store.conftest import LARGE, Opener
from tests.unit.store.test_repair import (
    ONE,
    C,
    Damage,
    added,
    bucket,
    contents,
    fill,
    harm,
    head,
    lost,
    many_lost,
    many_values,
    print_,
    topic_row,
    value,
    version,
)  # fmt: skip


@pytest.fixture
def store(open_store: Opener) -> Store:
    """An open store on an empty database, once on each of the three database systems."""
    return open_store(settings=LARGE)


def no_json(connection: object) -> None:
    connection.execute(update(schema.objects).where(ONE).values(value=b"no json"))  # type: ignore[attr-defined]


def everything(connection: object) -> None:
    connection.execute(sql("DELETE FROM pubsub_objects"))  # type: ignore[attr-defined]


DAMAGES = [value, version, lost, added, head, print_, bucket, topic_row, many_values, many_lost, no_json, everything]


@pytest.mark.quick_variants(16)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_accept_sets_head_to_rows_and_publishes_links(damage: Damage, store: Store, database_url: str) -> None:
    fill(store)
    with store.transaction() as tx:
        tx.set("port", "k9", {"n": "last"}, topic="t")
    store.trim(keep_links=1)
    before = store.topics()["t"]
    published: list[Sequence[Link]] = []
    store.on_commit(published.append)
    harm(database_url, damage)
    standing = {each.ident: each.value for each in contents(store)}
    done = store.accept("t")
    after = store.topics()["t"]
    assert (store.unfit(["t"]), store.inspect.verify("t").right, store.repair("t").wrong) == ([], True, 0)
    assert done.objects == after.count == len(contents(store))
    gone = {("port", "k7")} if damage is no_json else set()
    assert done.deleted == len(gone)
    assert {each.ident: each.value for each in contents(store)} == {
        ident: standing[ident] for ident in standing if ident not in gone
    }
    if damage in (bucket, print_):  # repaired without an operator, and invisible for replicas
        assert (done.repaired, done.position, published) == (1, None, [])
    elif damage is topic_row:  # the newest link matches the rows
        assert (done.repaired, after) == (1, before)
    elif damage is everything:  # no object can carry a link
        assert (done.position, after.point, after.count, after.digest) == (None, before.point, 0, 0)
    else:
        assert done.position == after.point.position > before.point.position
        delta = store.read_sync({"t": Want(after=before.point)}).chains["t"]
        assert isinstance(delta, Delta)
        assert delta.links == [link for links in published for link in links], "published, and in the changelog"
        assert (delta.links[-1].count, delta.links[-1].digest) == (after.count, after.digest)
        versions = [change.version for link in delta.links for change in link.changes]
        assert versions == list(range(before.point.position + 1, after.point.position + 1))
    assert store.accept("t").position is None, "a second accept finds no damage"


def test_accept_restores_topic_without_row_and_changelog(store: Store, database_url: str) -> None:
    fill(store, 50)
    store.trim(keep_links=0)
    harm(database_url, topic_row)
    done = store.accept("t")
    assert (done.objects, done.deleted, done.repaired) == (50, 0, 0)
    assert store.topics()["t"] == store.recount("t")


def test_accept_repairs_from_changelog_first(store: Store, database_url: str) -> None:
    fill(store)
    right = contents(store)
    harm(database_url, value, lost)
    done = store.accept("t")
    assert (done.repaired, done.rewritten, done.position) == (1, 0, None)
    assert contents(store) == right


def rogue(table: str, key: str) -> Damage:
    """A damage that adds a row with a name that no writer may use."""
    names = {"table_name": table, "object_key": key, "value": b"1"}

    def add(connection: Connection) -> None:
        columns = [literal(names[each.name]).label(each.name) if each.name in names else each for each in C]
        connection.execute(insert(schema.objects).from_select([each.name for each in C], select(*columns).where(ONE)))

    return add


ROGUES = [rogue("port", ""), rogue("", "k"), *(rogue(f"port{n}", "") for n in range(120))]
"""Empty keys, more of them than one transaction deletes, and an empty table."""


@pytest.mark.parametrize("harmed", [False, True], ids=["only invalid names", "damaged head and value"])
def test_accept_deletes_rows_with_invalid_names_without_change(harmed: bool, store: Store, database_url: str) -> None:
    fill(store, 20)
    store.trim(keep_links=0)
    before, right = store.topics()["t"], contents(store)
    published: list[Sequence[Link]] = []
    store.on_commit(published.append)
    damages = [*ROGUES, *([value, head] if harmed else [])]
    if store._writers.dialect.name != "mysql":  # its columns are limited to that size
        damages.append(rogue("port", "k" * 600))
    harm(database_url, *damages)
    done = store.accept("t")
    assert (done.objects, done.rewritten, done.deleted) == (20, int(harmed), len(damages) - 2 * harmed)
    assert [each.ident for each in contents(store)] == [each.ident for each in right]
    assert store.inspect.verify("t").right
    named = [
        (change.table, change.key, change.action) for links in published for link in links for change in link.changes
    ]
    assert named == ([("port", "k7", "set")] if harmed else [])
    with store.transaction() as tx:
        tx.set("port", "k1", "later", topic="t")
    delta = store.read_sync({"t": Want(after=before.point)}).chains["t"]
    assert isinstance(delta, Delta)
    assert len(delta.links) == 1 + harmed


def test_accept_empties_topic_whose_only_row_has_invalid_name(store: Store, database_url: str) -> None:
    fill(store, 8)
    store.trim(keep_links=0)
    harm(database_url, rogue("port", ""), lambda at: at.execute(delete(schema.objects).where(C.object_key != "")))
    assert store.accept("t").deleted == 1
    assert (contents(store), store.topics()["t"].count) == ([], 0)


def test_accept_fixes_text_bucket_before_buckets_are_compared(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        fill(store, 20)
        right = contents(store)
        harm(sqlite_url, lambda at: at.execute(sql("UPDATE pubsub_objects SET bucket = 'x' WHERE object_key = 'k7'")))
        harm(sqlite_url, lambda at: at.execute(delete(schema.objects).where(C.object_key == "k8")))
        done = store.accept("t")
        assert (done.objects, done.repaired, done.rewritten, done.position) == (20, 2, 0, None)
        assert contents(store) == right


@pytest.mark.parametrize(
    "limits", [Limits(max_transaction_bytes=1000), Limits(max_transaction_changes=3)], ids=["bytes", "changes"]
)
def test_accept_keeps_its_transactions_within_the_limits(limits: Limits, open_store: Opener, database_url: str) -> None:
    with open_store(limits=limits) as store:
        for number in range(12):
            with store.transaction() as tx:
                tx.set("port", f"k{number}", "x" * (990 if number == 5 else 290), topic="t")
        store.trim(keep_links=0)
        published: list[Sequence[Link]] = []
        store.on_commit(published.append)
        harm(database_url, lambda at: at.execute(update(schema.objects).values(version=C.version + 1000)))
        done = store.accept("t")
        assert (done.objects, done.rewritten, done.deleted) == (12, 12, 0)
        assert store.inspect.verify("t").right
        changes = [link.changes for links in published for link in links]
        assert sum(map(len, changes)) == 12
        assert max(map(len, changes)) <= limits.max_transaction_changes
        sizes = [sum(len(each.key) + len(each.value or b"") for each in part) for part in changes]
        assert max(sizes) <= limits.max_transaction_bytes
        assert len(changes) <= 6, "about as few transactions as the limits allow"


def test_accept_keeps_its_transactions_below_the_servers_packet(mariadb_url: str) -> None:
    with Store(mariadb_url) as store:
        for first in range(0, 100, 25):
            with store.transaction() as tx:
                for number in range(first, first + 25):
                    tx.set("port", f"k{number}", "x" * 200_000, topic="t")
        store.trim(keep_links=0)
        harm(mariadb_url, lambda at: at.execute(update(schema.objects).values(version=C.version + 1000)))
        assert store.accept("t").rewritten == 100
        assert store.inspect.verify("t").right


def test_accept_of_a_topic_that_was_never_written_is_refused(store: Store) -> None:
    fill(store, 8)
    with pytest.raises(NotFound, match="nothing was ever written to the topic 'never'; see pubsub-db topics"):
        store.accept("never")
