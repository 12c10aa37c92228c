"""``pubsub-db update``."""

from tests.unit.cli.world import World, fill


def test_members_are_merged_and_the_topic_is_kept(world: World) -> None:
    with world.open() as store:
        fill(store)
    before = world.head
    output = world.run("update", "lport", "p1", '{"chassis": "host-9"}', "-f", "json")
    assert output.json == {"table": "lport", "key": "p1", "topic": "tenant-1", "version": before + 1, "changed": True}
    assert world.contents()["lport", "p1"] == ("tenant-1", {"switch": "s1", "chassis": "host-9"})
    shown = world.run("update", "lport", "p1", '{"chassis": "host-9"}')
    assert (shown.code, world.head) == (0, before + 1)
    assert "| changed | False" in shown.out


def test_to_another_topic(world: World) -> None:
    with world.open() as store:
        fill(store)
    assert world.run("update", "lport", "p1", "{}", "--topic", "tenant-2", "-f", "json").json["topic"] == "tenant-2"
    assert world.contents()["lport", "p1"][0] == "tenant-2"


def test_only_in_the_expected_version(world: World) -> None:
    version = world.run("add", "lport", "p1", "{}", "-f", "json").json["version"]
    world.run("update", "lport", "p1", '{"a": 1}', "--if-version", version - 1).failed(1, f"but it is {version}")
    assert world.run("update", "lport", "p1", '{"a": 1}', "--if-version", version).code == 0


def test_update_of_a_missing_object_fails(world: World) -> None:
    world.run("update", "lport", "p9", "{}").failed(1, "there is no such object; use pubsub-db add")


def test_invalid_values_are_rejected(small: World) -> None:
    small.run("add", "lport", "p1", "1")
    small.run("update", "lport", "p1", "[]").failed(2, "give a mapping")
    small.run("update", "lport", "p1", "{}").failed(2, "its value is not a JSON object with members")
    output = small.run("update", "lport", "p1", "{}", "--if-version", "two")
    assert output.code == 2
    assert "'two' is not a version" in output.err
