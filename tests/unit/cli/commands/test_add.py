"""``pubsub-db add``."""

from tests.unit.cli.world import World


def test_a_new_object(world: World) -> None:
    before = world.head
    output = world.run("add", "lport", "p1", '{"chassis": "höst-7"}', "--topic", "tenant-1", "-f", "json")
    assert output.json == {"table": "lport", "key": "p1", "topic": "tenant-1", "version": before + 1, "changed": True}
    assert world.contents() == {("lport", "p1"): ("tenant-1", {"chassis": "höst-7"})}
    shown = world.run("add", "lport", "p2", "1")
    assert shown.code == 0
    assert f"| version | {before + 2}" in shown.out
    assert world.contents()["lport", "p2"] == ("default", 1)


def test_add_of_an_existing_object(world: World) -> None:
    world.run("add", "lport", "p1", "1")
    world.run("add", "lport", "p1", "2").failed(1, "'p1' exists already in the table 'lport'; give --replace")
    assert world.value("lport", "p1") == 1
    assert world.run("add", "lport", "p1", "2", "--replace", "-f", "json").json["changed"] is True
    assert world.value("lport", "p1") == 2


def test_add_of_equal_bytes_changes_nothing(world: World) -> None:
    first = world.run("add", "lport", "p1", "1", "-f", "json").json
    assert world.run("add", "lport", "p1", "1", "--replace", "-f", "json").json == {**first, "changed": False}
    assert world.head == first["version"]


def test_invalid_values_are_rejected(small: World) -> None:
    small.run("add", "lport", "p1", "host-7").failed(2, "the value 'host-7' is not valid JSON")
    small.run("add", "lport", "", "1").failed(2, "the key is empty")
    small.run("add", "lport", "p1", "1", "--topic", "x" * 300).failed(2, "the topic")
    small.run("add", "lport", "p1", f'"{"x" * 300_000}"').failed(2, "at most 262144 are allowed")
    assert small.contents() == {}


def test_a_key_that_begins_with_a_dash(small: World) -> None:
    output = small.run("add", "lport", "-f", "json", "--", "-p1", "-1")
    assert output.json["key"] == "-p1"
    assert small.value("lport", "-p1") == -1
