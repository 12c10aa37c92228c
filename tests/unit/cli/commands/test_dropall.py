"""``pubsub-db dropall``."""

from sqlalchemy import create_engine, inspect

from pubsub_lib.store import url
from tests.unit.cli.world import World, fill


def test_dropall_removes_all_tables_and_init_creates_them_again(bare: World) -> None:
    bare.run("init")
    with bare.open() as store:
        fill(store)
    bare.run("dropall").failed(2, "cannot ask whether to delete all objects, the changelog and all tables", "--yes")
    output = bare.run("dropall", "--yes", "-f", "json")
    assert output.json == {"deleted": 3, "tables": 10}
    engine = create_engine(url.parse(bare.url))
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    bare.run("tables").failed(4, "holds no tables of this library")
    bare.run("dropall", "--yes").failed(4, "holds no tables of this library")
    assert bare.run("init", "-f", "json").json["created"] is True
    shown = bare.run("dropall", "--yes")
    assert shown.code == 0
    assert "| deleted | 0 " in shown.out


def test_dropall_needs_force_beside_a_live_service(world: World) -> None:
    with world.open() as store:
        fill(store)
    if world.host is not None:
        world.run("dropall", "--yes").failed(1, "the service 'api-1' uses these tables; stop it, or give --force")
        assert len(world.contents()) == 3
