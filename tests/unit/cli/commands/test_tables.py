"""``pubsub-db tables``."""

from tests.unit.cli.world import World, fill


def test_tables_with_their_objects(world: World) -> None:
    with world.open() as store:
        fill(store)
    assert world.run("tables", "-f", "json").json == [
        {"table": "lport", "objects": 2},
        {"table": "switch", "objects": 1},
    ]
    shown = world.run("tables")
    assert shown.code == 0
    assert shown.out.splitlines()[3:5] == ["| lport  |       2 |", "| switch |       1 |"]


def test_no_objects_no_tables(world: World) -> None:
    assert world.run("tables", "-f", "json").json == []
    shown = world.run("tables")
    assert (shown.code, shown.out, shown.err) == (0, "", "pubsub-db: the store holds no objects\n")
