"""What a repair must never do: take away an object that a writer wrote."""

import pytest
from sqlalchemy import Connection, delete, update

from pubsub_lib.core.model import ZERO
from pubsub_lib.errors import StoreError
from pubsub_lib.store import Store, schema
from tests.unit.store.test_repair import ONE, C, contents, fill, harm, lost, suspects, topic_row


def other_topic(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(topic="b"))


def renamed(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(object_key="K7x"))


def moved_to_another_table(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(table_name="port2"))


def test_writer_goes_on_from_the_newest_link_when_the_row_of_the_topic_is_lost(store: Store, database_url: str) -> None:
    fill(store, 50)
    before = store.topics()["t"]
    harm(database_url, topic_row)
    with store.transaction() as tx:
        tx.delete("port", "k7")
    assert tx.commit is not None
    (link,) = tx.commit.links
    assert (link.prev, link.count) == (before.point, before.count - 1)
    assert store.unfit(["t"]) == []


def test_writer_refuses_a_topic_whose_head_nothing_tells(store: Store, database_url: str) -> None:
    fill(store, 50)
    store.trim(keep_links=0)
    harm(database_url, topic_row)
    words = r"the row of the topic 't' in pubsub_topics is lost.*pubsub-db accept"
    with pytest.raises(StoreError, match=words), store.transaction() as tx:
        tx.delete("port", "k7")
    assert len(contents(store)) == 50
    with store.transaction() as tx:
        tx.set("port", "new", 1, topic="never written")
    assert tx.commit is not None
    assert tx.commit.links[0].prev == ZERO


@pytest.mark.parametrize("damage", [lost, None])
def test_repair_after_accepting_a_topic_without_a_row_deletes_nothing(
    store: Store, database_url: str, damage: object
) -> None:
    fill(store, 50)
    store.trim(keep_links=0)
    harm(database_url, topic_row)
    store.accept("t")
    if damage is not None:
        harm(database_url, lost)
    store.repair("t")
    assert len(contents(store)) == 50 - (damage is not None)


def test_repair_deletes_nothing_by_a_changelog_that_began_anew(store: Store, database_url: str) -> None:
    """As an older release left it: a topic that lost its row began again from no head."""
    fill(store, 50)
    with store.transaction() as tx:
        tx.set("port", "k7", "later", topic="t")
    anew = {"prev_position": 0, "prev_nonce": 0}
    harm(database_url, lambda connection: connection.execute(update(schema.links).values(**anew)))
    store.trim(keep_links=1)
    harm(database_url, lambda connection: connection.execute(delete(schema.objects).where(C.object_key == "k9")))
    store.repair("t")
    assert len(contents(store)) == 49


@pytest.mark.parametrize("damage", [renamed, moved_to_another_table])
def test_repair_restores_an_object_whose_row_was_renamed(store: Store, database_url: str, damage: object) -> None:
    fill(store, 50)
    right, head = contents(store), store.topics()["t"]
    harm(database_url, damage)  # type: ignore[arg-type]
    assert store.unfit(["t"]) == [], "sums and buckets are as they were"
    repaired = store.repair("t", [each.ident for each in suspects(store)])
    assert (repaired.repaired, repaired.left) == (2, False)
    assert (contents(store), store.topics()["t"]) == (right, head)


@pytest.mark.parametrize("known", [False, True], ids=["new topic", "known topic"])
@pytest.mark.parametrize("trimmed", [False, True])
def test_row_on_a_wrong_topic_is_never_deleted(store: Store, database_url: str, known: bool, trimmed: bool) -> None:
    fill(store, 50)
    if trimmed:
        store.trim(keep_links=0)
    if known:
        fill(store, 5, topic="b")
    right, heads = contents(store), store.topics()
    harm(database_url, other_topic)
    for topic in ("b", "t", "b"):
        store.repair(topic)
    if trimmed:
        assert len(contents(store)) == len(right)
        assert store.topics() == heads
    else:
        assert (contents(store), store.topics()) == (right, heads)


def test_read_that_raised_leaves_no_old_snapshot_behind(store: Store, database_url: str) -> None:
    """The error is kept, and with it what was read in part."""
    fill(store, 300)
    first = schema.links.c.position == 100
    harm(database_url, lambda connection: connection.execute(update(schema.links).where(first).values(changes=b"\xc1")))
    errors = []
    for _ in range(10):
        with pytest.raises(StoreError) as raised:
            store.read_links(None, 1000)
        errors.append(raised.value)
    with store.transaction() as tx:
        tx.set("port", "k7", "later")
    for _ in range(10):
        assert store.get("port", "k7") == "later"
    assert len(errors) == 10


def test_set_of_bytes_that_were_altered_in_the_database_is_written(store: Store, database_url: str) -> None:
    fill(store, 20)
    harm(database_url, lambda connection: connection.execute(update(schema.objects).where(ONE).values(value=b"2")))
    with store.transaction() as tx:
        tx.set("port", "k7", 2)
    assert tx.commit is not None
    store.repair("t")
    assert store.get("port", "k7") == 2
    assert store.unfit(["t"]) == []
