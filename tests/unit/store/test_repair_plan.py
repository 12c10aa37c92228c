"""What a plan takes for lost, and what it only finds elsewhere."""

from pubsub_lib.store import Store
from tests.unit.store.test_repair import fill, harm, lost


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
