"""``pubsub-db get``."""

from tests.unit.cli.world import World, fill


def test_one_object(world: World) -> None:
    with world.open() as store:
        fill(store)
        record = store.get_record("lport", "p2")
    assert record is not None
    assert world.run("get", "lport", "p2", "-f", "json").json == {
        "table": "lport",
        "key": "p2",
        "topic": "tenant-2",
        "version": record.version,
        "value": {"switch": "s1", "chassis": "höst-8"},
    }
    shown = world.run("get", "lport", "p2")
    assert shown.code == 0
    assert '| value   | {"chassis":"höst-8","switch":"s1"} |' in shown.out.splitlines()


def test_missing_key_is_one_sentence(world: World) -> None:
    world.run("get", "lport", "p9").failed(1, "there is no object 'p9' in the table 'lport'")
