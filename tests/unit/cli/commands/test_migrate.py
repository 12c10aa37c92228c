"""``pubsub-db migrate``."""

from sqlalchemy import create_engine, text

from pubsub_lib.store import url
from pubsub_lib.store.schema import REVISION
from tests.unit.cli.world import World


def test_an_empty_database_and_a_current_one(bare: World) -> None:
    assert bare.run("migrate", "-f", "json").json == {"before": None, "after": REVISION}
    shown = bare.run("migrate")
    assert shown.code == 0
    assert f"| before | {REVISION} " in shown.out


def test_beside_a_service(world: World) -> None:
    assert world.run("migrate", "-f", "json").json == {"before": REVISION, "after": REVISION}


def test_older_schema_is_migrated_and_newer_schema_is_rejected(bare: World) -> None:
    bare.run("init")
    engine = create_engine(url.parse(bare.url))
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE pubsub_services"))
        connection.execute(text("DROP TABLE pubsub_leases"))
        connection.execute(text("UPDATE pubsub_version SET version_num = '0001'"))
    bare.run("tables").failed(4, "has the schema 0001", "run pubsub-db migrate")
    assert bare.run("migrate", "-f", "json").json == {"before": "0001", "after": REVISION}
    assert bare.run("tables").code == 0
    with engine.begin() as connection:
        connection.execute(text("UPDATE pubsub_version SET version_num = '9999'"))
    engine.dispose()
    bare.run("migrate").failed(4, "has the schema 9999, unknown to this library", "install a newer one")
