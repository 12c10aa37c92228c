"""``pubsub-db clean``."""

from tests.unit.cli.world import World, fill


def test_everything(world: World) -> None:
    with world.open() as store:
        fill(store)
    before = world.head
    assert world.run("clean", "--yes", "-f", "json").json == {
        "deleted": 3, "transactions": 1, "position": before + 3,
    }  # fmt: skip
    assert world.contents() == {}


def test_clean_by_table_and_topic(world: World) -> None:
    with world.open() as store:
        fill(store)
    shown = world.run("clean", "--yes", "--table", "lport", "--topic", "tenant-1")
    assert shown.code == 0
    assert "| deleted      | 1 " in shown.out
    assert world.run("clean", "--yes", "--topic", "tenant-1", "-f", "json").json["deleted"] == 1
    assert list(world.contents()) == [("lport", "p2")]
    assert world.run("clean", "--yes", "--table", "lport", "-f", "json").json["deleted"] == 1


def test_nothing_to_delete(world: World) -> None:
    output = world.run("clean", "--yes", "-f", "json")
    assert output.json == {"deleted": 0, "transactions": 0, "position": None}


def test_confirmation_names_the_number_of_objects(small: World) -> None:
    with small.open() as store:
        fill(store)
    for arguments, words in [
        ((), "all 3 objects of all tables"),
        (("--table", "lport"), "all objects of the table 'lport' (2)"),
        (("--topic", "tenant-1"), "all objects on the topic 'tenant-1' (2)"),
        (("--table", "lport", "--topic", "tenant-1"), "of the table 'lport' on the topic 'tenant-1' (1)"),
        (("--table", "lport", "--topic", "t"), "of the table 'lport' on the topic 't' (0)"),
    ]:
        small.run("clean", *arguments).failed(2, words)
    assert len(small.contents()) == 3


def test_invalid_table_name_is_rejected(small: World) -> None:
    small.run("clean", "--table", "").failed(2, "the table is empty")
