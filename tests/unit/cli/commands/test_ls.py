"""``pubsub-db ls``."""

from tests.unit.cli.world import World, fill


def test_keys_of_a_table(world: World) -> None:
    with world.open() as store:
        fill(store)
        versions = {each.key: each.version for each in store.objects()}
    assert world.run("ls", "lport", "-f", "json").json == [
        {"key": "p1", "topic": "tenant-1", "version": versions["p1"]},
        {"key": "p2", "topic": "tenant-2", "version": versions["p2"]},
    ]
    assert [each["key"] for each in world.run("ls", "lport", "--topic", "tenant-2", "-f", "json").json] == ["p2"]
    shown = world.run("ls", "lport")
    assert shown.code == 0
    assert [line.split("|")[1].strip() for line in shown.out.splitlines()[3:5]] == ["p1", "p2"]


def test_a_table_without_objects(world: World) -> None:
    assert world.run("ls", "nothing", "-f", "json").json == []
    shown = world.run("ls", "nothing")
    assert (shown.code, shown.out, shown.err) == (0, "", "pubsub-db: the table 'nothing' holds no objects\n")


def test_invalid_table_name_is_rejected(small: World) -> None:
    small.run("ls", "").failed(2, "the table is empty")
