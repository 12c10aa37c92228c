"""``pubsub-db init``."""

from pathlib import Path

from pubsub_lib.store.schema import REVISION
from tests.unit.cli.world import World


def test_makes_the_tables_once(bare: World) -> None:
    output = bare.run("init", "-f", "json").json
    assert (output["schema"], output["created"]) == (REVISION, True)
    assert bare.run("tables", "-f", "json").json == []
    bare.run("add", "t", "k", "1")
    shown = bare.run("init")
    assert shown.code == 0
    assert "| created  | False" in shown.out
    assert bare.value("t", "k") == 1


def test_nothing_is_made_when_a_column_is_unknown(bare: World) -> None:
    bare.run("init", "-c", "colour").failed(2, "there is no column 'colour'; name one of database, schema, created")
    bare.run("tables").failed(4, "init")


def test_beside_a_service(world: World) -> None:
    assert world.run("init", "-f", "json").json["created"] is False


def test_the_password_is_not_shown(small: World) -> None:
    output = small.run("init", "--database", "postgresql://me:secret@127.0.0.1:1/net")
    assert (output.code, output.out) == (4, "")
    assert "secret" not in output.err
    assert "others on this host can read the password of --database in the process list" in output.err
    assert "me:***@127.0.0.1" in output.err


def test_init_of_an_unusable_database_fails(small: World, tmp_path: Path) -> None:
    small.run("init", "--database", f"sqlite:///{tmp_path}/no/net.db").failed(4, "opening")
    (tmp_path / "text.db").write_text("this is no database, but a text of more than hundred bytes. " * 5)
    small.run("init", "--database", f"sqlite:///{tmp_path}/text.db").failed(4, "not a SQLite database")
    small.run("init", "--database", "sqlite://").failed(2, "name a file")
