"""``pubsub-db topics``."""

from pubsub_lib.cli.human import hexadecimal
from tests.unit.cli.world import World, fill


def test_heads_of_all_topics(world: World) -> None:
    with world.open() as store:
        fill(store)
        heads = store.topics()
    found = {each["topic"]: each for each in world.run("topics", "-f", "json").json}
    assert found.keys() == heads.keys()
    one = heads["tenant-1"]
    assert found["tenant-1"] == {
        "topic": "tenant-1",
        "objects": 2,
        "head": one.point.position,
        "digest": hexadecimal(one.digest),
    }
    shown = world.run("topics")
    assert shown.code == 0
    assert [each.strip() for each in shown.out.splitlines()[1].strip("|").split("|")] == [
        "topic", "objects", "head", "digest",
    ]  # fmt: skip


def test_nothing_was_ever_written(fresh: World) -> None:
    assert fresh.run("topics", "-f", "json").json == []
    shown = fresh.run("topics")
    assert (shown.code, shown.out) == (0, "")
    assert "nothing was ever written" in shown.err
