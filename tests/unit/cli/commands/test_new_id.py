"""``pubsub-db new-id``."""

from tests.unit.cli.world import World, fill


def test_copy_gets_a_new_id_and_keeps_its_objects(bare: World) -> None:
    bare.run("init")
    with bare.open() as store:
        fill(store)
        before = store.read_heads([""])
    bare.run("new-id").failed(2, "cannot ask whether to give", "--yes")
    shown = bare.run("new-id", "--yes", "-f", "json").json
    assert shown["before"] == before.store_id.hex() != shown["after"]
    with bare.open() as store:
        after = store.read_heads([""])
    assert after.store_id.hex() == shown["after"]
    assert (after.store, after.topics) == (before.store, before.topics)


def test_database_without_tables_gets_no_id(bare: World) -> None:
    bare.run("new-id", "--yes").failed(4, "pubsub-db init")


def test_dropall_and_init_make_another_id(bare: World) -> None:
    bare.run("init")
    with bare.open() as store:
        before = store.store_id
    bare.run("dropall", "--yes")
    bare.run("init")
    with bare.open() as store:
        assert store.store_id not in (before, b"")
