"""``pubsub-db dropall``."""

import pytest
from sqlalchemy import create_engine, inspect

from pubsub_lib.cli.commands import dropall
from pubsub_lib.store import url
from tests.unit.cli.world import World, fill


@pytest.mark.quick_variants(1)
def test_dropall_removes_all_tables_and_init_creates_them_again(bare: World) -> None:
    bare.run("init")
    with bare.open() as store:
        fill(store)
    bare.run("dropall", "--force").failed(2, "cannot ask whether to drop 3 objects, the changelog and all", "--yes")
    output = bare.run("dropall", "--force", "--yes", "-f", "json")
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


def test_dropall_looks_again_after_the_prompt(bare: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.run("init")

    def written_meanwhile(parsed_args: object, what: str) -> None:
        assert what.startswith("drop 0 objects")
        with bare.open() as store:
            fill(store)

    monkeypatch.setattr(dropall, "confirm", written_meanwhile)
    bare.run("dropall").failed(1, "the replicas would keep the 3 objects")
    assert len(bare.contents()) == 3
    bare.run("clean", "--yes")
    monkeypatch.undo()
    assert bare.run("dropall", "--yes", "-f", "json").json == {"deleted": 0, "tables": 10}


def test_dropall_needs_force_beside_a_live_service(world: World) -> None:
    with world.open() as store:
        fill(store)
        assert len(world.contents()) == 3
    world.run("dropall", "--yes").failed(1, "the replicas would keep the 3 objects", "pubsub-db clean", "--force")
    assert len(world.contents()) == 3
    if world.host is not None:
        world.run("clean", "--yes")
        world.run("dropall", "--yes").failed(1, "the service 'api-1' uses these tables; stop it, or give --force")
        assert world.contents() == {}
