"""``pubsub-db topics``."""

import pytest

from pubsub_lib.cli.formatting import hexadecimal
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


COMMANDS = [
    ("diff", 0, 2),
    ("history", "lport", "p1"),
    ("log", "--values"),
    ("publishers",),
    ("topics",),
    ("verify", "tenant-1"),
]


@pytest.mark.quick_variants(1)
def test_every_list_in_every_format(fresh: World) -> None:
    with fresh.open() as store:
        fill(store)
        store.directory.register("tenant-1 and p1", "u1", "tcp://h:1", 60)  # the expected words
    for command in COMMANDS:
        names = list(fresh.run(*command, "-f", "json").json[0])
        for form in ("yaml", "csv", "value", "table"):
            output = fresh.run(*command, "-f", form)
            assert output.code == 0, (command, form, output)
            assert "p1" in output.out or "tenant-1" in output.out or "objects" in output.out, (command, form)
            if form != "value":
                assert all(name in output.out for name in names), (command, form)


def test_nothing_was_ever_written(fresh: World) -> None:
    assert fresh.run("topics", "-f", "json").json == []
    shown = fresh.run("topics")
    assert (shown.code, shown.out) == (0, "")
    assert "nothing was ever written" in shown.err
