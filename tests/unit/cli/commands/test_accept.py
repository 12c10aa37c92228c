"""``pubsub-db accept``: repair of a topic whose original data is lost."""

import pytest
from sqlalchemy import create_engine, text

from tests.unit.cli.commands.test_verify import by_hand, following, until_right, write
from tests.unit.cli.world import World


def damage(world: World) -> None:
    """Damage that no changelog can repair: a changed value, a lost object and a wrong head."""
    with world.open() as store:
        store.trim(keep_links=0)
    by_hand(world, "k7", b'"by hand"')
    by_hand(world, "k8", None)
    engine = create_engine(world.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE pubsub_topics SET digest_lo = 1 WHERE topic = 'verified'"))
    engine.dispose()


@pytest.mark.quick_variants(1)
def test_a_topic_is_accepted_and_a_replica_repairs_by_buckets(fresh: World) -> None:
    write(fresh)
    with following(fresh, "verified") as (replica, url):
        assert replica.get("t", "k8") is not None
        damage(fresh)
        assert fresh.run("verify", "verified").code == 1
        done = fresh.run("accept", "--topic", "verified", "--yes", "-f", "json").json
        assert {name: done[name] for name in ("topic", "objects", "repaired", "rewritten", "deleted")} == {
            "topic": "verified", "objects": 19, "repaired": 0, "rewritten": 1, "deleted": 0,
        }  # fmt: skip
        assert done["position"] == fresh.head == 21
        until_right(fresh, url)
        assert (replica.get("t", "k7"), replica.get("t", "k8")) == ("by hand", None)
        assert fresh.run("verify", "verified").code == 0
    again = fresh.run("accept", "--topic", "verified", "--yes")
    assert again.code == 0
    assert "the rows of the topic verified match its head; nothing was changed" in again.err
    assert fresh.head == 21


def test_accept_asks_for_confirmation_and_rejects_an_unknown_topic(fresh: World) -> None:
    write(fresh)
    damage(fresh)
    fresh.run("accept", "--topic", "verified").failed(2, "cannot ask whether to accept the 19 objects", "--yes")
    fresh.run("accept", "--topic", "never", "--yes").failed(1, "nothing was ever written to the topic 'never'")
    assert fresh.head == 20
