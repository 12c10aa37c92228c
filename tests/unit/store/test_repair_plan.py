"""Plans distinguish lost objects from objects on another topic, and never delete a correct object."""

import sqlite3

import pytest
from sqlalchemy import Connection, create_engine, delete, select, update
from sqlalchemy import text as sql

from pubsub_lib.core.model import ALL, ZERO, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.store import Store, schema
from tests.unit.store.test_repair import ONE, C, bucket, contents, fill, harm, lost, suspects, text, topic_row, value


def test_plan_does_not_restore_object_created_on_another_topic(store: Store, database_url: str) -> None:
    fill(store, 50)
    harm(database_url, lost)
    with store.transaction() as tx:
        tx.set("port", "k7", {"n": "elsewhere"}, topic="other")
    repaired = store.repair("t")
    assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False), "the head still counts the lost object"
    record = store.get_record("port", "k7")
    assert record is not None
    assert record.topic == "other"
    assert store.unfit(["t", "other"]) == []


def test_plan_does_not_restore_object_deleted_on_another_topic(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.store.repair_plan.PAGE", 3)
    fill(store, 50)
    harm(database_url, lost)
    with store.transaction() as tx:
        for number in range(5):
            tx.set("port", f"other {number}", 1, topic=f"other {number}")
    with store.transaction() as tx:
        tx.set("port", "k7", {"n": "elsewhere"}, topic="other")
    with store.transaction() as tx:
        tx.delete("port", "k7")
    repaired = store.repair("t")
    assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False), "the head still counts the lost object"
    assert store.get_record("port", "k7") is None
    assert store.unfit(["t", "other"]) == []


def columns(url: str) -> list[tuple[object, ...]]:
    """All columns of all objects, as stored."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(select(schema.objects).order_by(*schema.objects.primary_key))]
    engine.dispose()
    return found


@pytest.mark.parametrize("trimmed", [False, True])
def test_plan_fixes_a_wrong_bucket(store: Store, database_url: str, trimmed: bool) -> None:
    fill(store)
    if trimmed:
        store.trim(keep_links=0)
    right, buckets = columns(database_url), store.bucket_digests("t")
    harm(database_url, bucket)
    found = [each.ident for each in suspects(store)]
    assert found == [("port", "k7")]
    assert store.unfit(["t"]) == []
    repaired = store.repair("t", found)
    assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False), "no changelog is needed"
    assert columns(database_url) == right
    assert store.bucket_digests("t") == buckets


@pytest.mark.parametrize("value", [17, -1, 1 << 40])
def test_number_in_place_of_a_value_is_named(sqlite_url: str, value: int) -> None:
    """Python makes 17 zero bytes of the number 17."""
    with Store(sqlite_url) as store:
        fill(store)
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
            connection.execute("UPDATE pubsub_objects SET value = ? WHERE object_key = 'k7'", (value,))
        connection.close()
        for wanted in ("t", ALL):
            with pytest.raises(StoreError, match=r"the object 'k7' of the table 'port'.* its value is int, not bytes"):
                store.read_sync({wanted: Want()})


@pytest.mark.parametrize("trimmed", [False, True])
def test_plan_converts_text_value_to_bytes(sqlite_url: str, trimmed: bool) -> None:
    with Store(sqlite_url) as store:
        fill(store)
        if trimmed:
            store.trim(keep_links=0)
        right = columns(sqlite_url)
        harm(sqlite_url, text)
        for read in (
            lambda: store.get("port", "k7"),
            lambda: list(store.objects()),
            lambda: store.read_sync({"t": Want()}),
            lambda: store.read_sync({ALL: Want()}),
        ):
            with pytest.raises(StoreError, match=r"the object 'k7' of the table 'port'.* its value is str, not bytes"):
                read()
        with pytest.raises(StoreError, match=r"the object 'k7' of the table 'port'"), store.transaction() as tx:
            tx.set("port", "k7", 1, topic="t")
        found = [each.ident for each in suspects(store)]
        assert found == [("port", "k7")]
        verified = store.inspect.verify("t")
        assert (verified.right, verified.damages) == (False, 1)
        repaired = store.repair("t", found)
        assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False)
        assert columns(sqlite_url) == right
        assert store.inspect.verify("t").right


def test_plan_restores_altered_text_value_from_changelog(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        fill(store)
        right = columns(sqlite_url)
        for wrong in ("'by hand'", "17", "'{}'"):
            harm(sqlite_url, lambda at, wrong=wrong: at.execute(sql(f"UPDATE pubsub_objects SET value = {wrong}")))  # type: ignore[misc]
            repaired = store.repair("t", [each.ident for each in suspects(store)])
            assert (repaired.repaired, repaired.left) == (len(right), False)
            assert columns(sqlite_url) == right


def test_plan_deletes_nothing_without_topic_row_and_changelog(store: Store, database_url: str) -> None:
    fill(store)
    store.trim(keep_links=0)
    right = contents(store)
    harm(database_url, topic_row, value)
    repaired = store.repair("t", [each.ident for each in suspects(store)])
    assert (repaired.repaired, repaired.left) == (0, True)
    assert len(contents(store)) == len(right)
    with pytest.raises(StoreError, match=r"the row of the topic 't' in pubsub_topics is lost"):
        store.read_sync({ALL: Want()})


def test_plan_does_not_restore_topic_row_from_mismatching_changelog(store: Store, database_url: str) -> None:
    fill(store)
    right = contents(store)
    harm(database_url, topic_row, lost)
    repaired = store.repair("t")
    assert (repaired.repaired, repaired.left) == (0, True)
    assert len(contents(store)) == len(right) - 1
    assert "t" not in store.topics()


# -- a repair must never delete an object that a writer wrote ---------------------------------------------------------


def other_topic(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(topic="b"))


def renamed(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(object_key="K7x"))


def moved_to_another_table(connection: Connection) -> None:
    connection.execute(update(schema.objects).where(ONE).values(table_name="port2"))


def test_writer_continues_from_newest_link_without_topic_row(store: Store, database_url: str) -> None:
    fill(store, 50)
    before = store.topics()["t"]
    harm(database_url, topic_row)
    with store.transaction() as tx:
        tx.delete("port", "k7")
    assert tx.commit is not None
    (link,) = tx.commit.links
    assert (link.prev, link.count) == (before.point, before.count - 1)
    assert store.unfit(["t"]) == []


def test_writer_rejects_topic_without_row_and_links(store: Store, database_url: str) -> None:
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
def test_repair_after_accept_of_topic_without_row_deletes_nothing(
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


def test_repair_deletes_nothing_by_a_changelog_that_started_again(store: Store, database_url: str) -> None:
    """The state after an older release: a topic whose row was lost started again from no head."""
    fill(store, 50)
    with store.transaction() as tx:
        tx.set("port", "k7", "later", topic="t")
    restarted = {"prev_position": 0, "prev_nonce": 0}
    harm(database_url, lambda connection: connection.execute(update(schema.links).values(**restarted)))
    store.trim(keep_links=1)
    harm(database_url, lambda connection: connection.execute(delete(schema.objects).where(C.object_key == "k9")))
    store.repair("t")
    assert len(contents(store)) == 49


@pytest.mark.parametrize("damage", [renamed, moved_to_another_table])
def test_repair_restores_an_object_whose_row_was_renamed(store: Store, database_url: str, damage: object) -> None:
    fill(store, 50)
    right, head = contents(store), store.topics()["t"]
    harm(database_url, damage)  # type: ignore[arg-type]
    assert store.unfit(["t"]) == [], "sums and buckets are unchanged"
    repaired = store.repair("t", [each.ident for each in suspects(store)])
    assert (repaired.repaired, repaired.left) == (2, False)
    assert (contents(store), store.topics()["t"]) == (right, head)


@pytest.mark.parametrize("known", [False, True], ids=["new topic", "known topic"])
@pytest.mark.parametrize("trimmed", [False, True])
def test_repair_does_not_delete_a_row_on_a_wrong_topic(
    store: Store, database_url: str, known: bool, trimmed: bool
) -> None:
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


def test_read_that_raised_keeps_no_old_snapshot_open(store: Store, database_url: str) -> None:
    """The error is kept, and with it the result that was read in part."""
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


def test_set_of_equal_bytes_is_written_over_an_altered_row(store: Store, database_url: str) -> None:
    fill(store, 20)
    harm(database_url, lambda connection: connection.execute(update(schema.objects).where(ONE).values(value=b"2")))
    with store.transaction() as tx:
        tx.set("port", "k7", 2)
    assert tx.commit is not None
    store.repair("t")
    assert store.get("port", "k7") == 2
    assert store.unfit(["t"]) == []
