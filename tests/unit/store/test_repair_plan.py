"""What a plan takes for lost, and what it only finds elsewhere."""

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy import text as sql

from pubsub_lib.core.model import ALL, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.store import Store, schema
from tests.unit.store.test_repair import bucket, contents, fill, harm, lost, suspects, text, topic_row, value


def test_plan_takes_no_object_for_lost_that_a_writer_created_on_another_topic(store: Store, database_url: str) -> None:
    fill(store, 50)
    harm(database_url, lost)
    with store.transaction() as tx:
        tx.set("port", "k7", {"n": "elsewhere"}, topic="other")
    repaired = store.repair("t")
    assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False), "the head counted it still"
    record = store.get_record("port", "k7")
    assert record is not None
    assert record.topic == "other"
    assert store.unfit(["t", "other"]) == []


def test_plan_takes_no_object_for_lost_that_a_writer_deleted_on_another_topic(
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
    assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False), "the head counted it still"
    assert store.get_record("port", "k7") is None
    assert store.unfit(["t", "other"]) == []


def columns(url: str) -> list[tuple[object, ...]]:
    """All columns of all objects, as they lie there."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(select(schema.objects).order_by(*schema.objects.primary_key))]
    engine.dispose()
    return found


@pytest.mark.parametrize("trimmed", [False, True])
def test_plan_puts_an_object_into_the_bucket_of_its_key(store: Store, database_url: str, trimmed: bool) -> None:
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


@pytest.mark.parametrize("trimmed", [False, True])
def test_plan_turns_a_value_of_text_into_its_bytes(sqlite_url: str, trimmed: bool) -> None:
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
        verified = store.look.verify("t")
        assert (verified.right, verified.damages) == (False, 1)
        repaired = store.repair("t", found)
        assert (repaired.wrong, repaired.repaired, repaired.left) == (1, 1, False)
        assert columns(sqlite_url) == right
        assert store.look.verify("t").right


def test_plan_takes_the_right_value_for_other_text_from_the_changelog(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        fill(store)
        right = columns(sqlite_url)
        for wrong in ("'by hand'", "17", "'{}'"):
            harm(sqlite_url, lambda at, wrong=wrong: at.execute(sql(f"UPDATE pubsub_objects SET value = {wrong}")))  # type: ignore[misc]
            repaired = store.repair("t", [each.ident for each in suspects(store)])
            assert (repaired.repaired, repaired.left) == (len(right), False)
            assert columns(sqlite_url) == right


def test_plan_deletes_nothing_when_a_topic_lost_its_row_and_its_changelog(store: Store, database_url: str) -> None:
    fill(store)
    store.trim(keep_links=0)
    right = contents(store)
    harm(database_url, topic_row, value)
    repaired = store.repair("t", [each.ident for each in suspects(store)])
    assert (repaired.repaired, repaired.left) == (0, True)
    assert len(contents(store)) == len(right)
    with pytest.raises(StoreError, match=r"the row of the topic 't' in pubsub_topics is lost"):
        store.read_sync({ALL: Want()})


def test_plan_does_not_guess_the_row_of_a_topic_from_a_changelog_that_does_not_fit(
    store: Store, database_url: str
) -> None:
    fill(store)
    right = contents(store)
    harm(database_url, topic_row, lost)
    repaired = store.repair("t")
    assert (repaired.repaired, repaired.left) == (0, True)
    assert len(contents(store)) == len(right) - 1
    assert "t" not in store.topics()
