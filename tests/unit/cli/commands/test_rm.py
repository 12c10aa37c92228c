"""``pubsub-db rm``."""

from tests.unit.cli.world import World, fill


def test_one_and_several(world: World) -> None:
    with world.open() as store:
        fill(store)
    before = world.head
    assert world.run("rm", "switch", "s1", "--yes", "-f", "json").json == {
        "table": "switch", "deleted": 1, "position": before + 1,
    }  # fmt: skip
    shown = world.run("rm", "lport", "p1", "p2", "p1", "-y")
    assert shown.code == 0
    assert "| deleted  | 2 " in shown.out
    assert world.contents() == {}


def test_all_or_none(world: World) -> None:
    with world.open() as store:
        fill(store)
    world.run("rm", "lport", "p1", "p9", "-y").failed(1, "delete of lport 'p9': there is no such object; give --miss")
    assert ("lport", "p1") in world.contents()
    output = world.run("rm", "lport", "p1", "p9", "-y", "--missing-ok", "-f", "json")
    assert output.json["deleted"] == 1


def test_nothing_to_delete(world: World) -> None:
    assert world.run("rm", "lport", "p9", "-y", "--missing-ok", "-f", "json").json == {
        "table": "lport", "deleted": 0, "position": None,
    }  # fmt: skip


def test_only_in_the_expected_version(world: World) -> None:
    version = world.run("add", "lport", "p1", "{}", "-f", "json").json["version"]
    world.run("rm", "lport", "p1", "-y", "--if-version", version + 1).failed(1, f"but it is {version}")
    assert world.run("rm", "lport", "p1", "-y", "--if-version", version).code == 0
    world.run("rm", "lport", "p1", "p2", "-y", "--if-version", 1).failed(2, "about one object, not 2")


def test_confirmation_needs_a_terminal(small: World) -> None:
    small.run("add", "lport", "p1", "1")
    small.run("rm", "lport", "p1").failed(2, "cannot ask whether to delete 'p1' of the table 'lport'", "--yes")
    assert small.value("lport", "p1") == 1
