"""``pubsub-db dump``."""

from tests.unit.cli.world import World, fill


def test_all_objects_with_their_values(world: World) -> None:
    with world.open() as store:
        fill(store)
        versions = {each.key: each.version for each in store.objects()}
    assert world.run("dump", "-f", "json").json == [
        {"table": "lport", "key": "p1", "topic": "tenant-1", "version": versions["p1"],
         "value": {"chassis": "host-7", "switch": "s1"}},
        {"table": "lport", "key": "p2", "topic": "tenant-2", "version": versions["p2"],
         "value": {"chassis": "höst-8", "switch": "s1"}},
        {"table": "switch", "key": "s1", "topic": "tenant-1", "version": versions["s1"], "value": {"name": "edge 1"}},
    ]  # fmt: skip
    shown = world.run("dump", "--table", "lport", "--topic", "tenant-2")
    assert shown.code == 0
    assert shown.out.count("\n") == 5
    assert '{"chassis":"höst-8","switch":"s1"}' in shown.out


def test_nothing(world: World) -> None:
    assert world.run("dump", "-f", "json").json == []
    shown = world.run("dump", "--table", "nothing")
    assert (shown.code, shown.out, shown.err) == (0, "", "pubsub-db: there are no such objects\n")
