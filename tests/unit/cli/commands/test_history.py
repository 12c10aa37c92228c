"""``pubsub-db history``."""

from tests.unit.cli.world import World


def test_history_of_a_moved_and_deleted_object(world: World) -> None:
    with world.open() as store:
        for value in ("x", "y"):
            with store.transaction(origin="api-1") as tx:
                tx.set("lport", "mover", value, topic="b")
        with store.transaction() as tx:
            tx.set("lport", "mover", "z", topic="a")
        assert tx.commit is not None
        at = tx.commit.point.position
    found = world.run("history", "lport", "mover", "-f", "json").json[-4:]
    assert [(each["action"], each["topic"], each["value"]) for each in found] == [
        ("create", "b", "x"),
        ("set", "b", "y"),
        ("delete", "b", None),
        ("create", "a", "z"),
    ]
    assert [each["version"] for each in found[2:]] == [at - 1, at]
    assert [each["transaction"] for each in found[2:]] == [at, at]
    assert [each["origin"] for each in found] == ["api-1", "api-1", "", ""]
    assert all(each["written"].endswith("Z") for each in found)
    shown = world.run("history", "lport", "mover", "-c", "version", "-c", "value")
    assert shown.code == 0
    assert shown.out.splitlines()[-2].replace(" ", "") == f'|{at}|"z"|'


def test_an_object_whose_versions_were_trimmed(fresh: World) -> None:
    with fresh.open() as store:
        with store.transaction() as tx:
            tx.set("lport", "p1", 1)
        store.trim(keep_links=0)
    assert fresh.run("history", "lport", "p1", "-f", "json").json == []
    output = fresh.run("history", "lport", "p1")
    assert (output.code, output.out) == (0, "")
    assert "last written at position 1, which the changelog has trimmed" in output.err


def test_history_of_an_unknown_object_fails(world: World) -> None:
    world.run("history", "lport", "never").failed(1, "no object 'never' in the table 'lport'")
    world.run("history", "lport", "").failed(2, "key")
