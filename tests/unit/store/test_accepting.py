"""Rows are accepted as they stand where nothing tells what is right, and replicas can follow."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text as sql
from sqlalchemy import update

from pubsub_lib.core.model import Delta, Link, Want
from pubsub_lib.store import Store, schema
from tests.unit.store.test_repair import (
    ONE,
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


def no_json(connection: object) -> None:
    connection.execute(update(schema.objects).where(ONE).values(value=b"no json"))  # type: ignore[attr-defined]


def everything(connection: object) -> None:
    connection.execute(sql("DELETE FROM pubsub_objects"))  # type: ignore[attr-defined]


DAMAGES = [value, version, lost, added, head, print_, bucket, topic_row, many_values, many_lost, no_json, everything]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_accept_sets_the_head_to_the_rows_by_links_that_replicas_follow(
    damage: Damage, store: Store, database_url: str
) -> None:
    fill(store)
    with store.transaction() as tx:
        tx.set("port", "k9", {"n": "last"}, topic="t")
    store.trim(keep_links=1)
    before = store.topics()["t"]
    told: list[Sequence[Link]] = []
    store.on_commit(told.append)
    harm(database_url, damage)
    standing = {each.ident: each.value for each in contents(store)}
    done = store.accept("t")
    after = store.topics()["t"]
    assert (store.unfit(["t"]), store.look.verify("t").right, store.repair("t").wrong) == ([], True, 0)
    assert done.objects == after.count == len(contents(store))
    gone = {("port", "k7")} if damage is no_json else set()
    assert done.deleted == len(gone)
    assert {each.ident: each.value for each in contents(store)} == {
        ident: standing[ident] for ident in standing if ident not in gone
    }
    if damage in (bucket, print_):  # which need no operator, and no replica sees them
        assert (done.repaired, done.position, told) == (1, None, [])
    elif damage is topic_row:  # the newest link fits
        assert (done.repaired, after) == (1, before)
    elif damage is everything:  # no object carries a link
        assert (done.position, after.point, after.count, after.digest) == (None, before.point, 0, 0)
    else:
        assert done.position == after.point.position > before.point.position
        delta = store.read_sync({"t": Want(after=before.point)}).chains["t"]
        assert isinstance(delta, Delta)
        assert delta.links == [link for links in told for link in links], "they are published, and in the changelog"
        assert (delta.links[-1].count, delta.links[-1].digest) == (after.count, after.digest)
        versions = [change.version for link in delta.links for change in link.changes]
        assert versions == list(range(before.point.position + 1, after.point.position + 1))
    assert store.accept("t").position is None, "nothing is wrong any more"


def test_accept_makes_a_topic_of_rows_whose_row_and_changelog_are_lost(store: Store, database_url: str) -> None:
    fill(store, 50)
    store.trim(keep_links=0)
    harm(database_url, topic_row)
    done = store.accept("t")
    assert (done.objects, done.deleted, done.repaired) == (50, 0, 0)
    assert store.topics()["t"] == store.recount("t")


def test_accept_repairs_first_what_the_changelog_tells(store: Store, database_url: str) -> None:
    fill(store)
    right = contents(store)
    harm(database_url, value, lost)
    done = store.accept("t")
    assert (done.repaired, done.rewritten, done.position) == (1, 0, None)
    assert contents(store) == right
