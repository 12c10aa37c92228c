"""``pubsub-db publishers``."""

from sqlalchemy import create_engine, update

from pubsub_lib.store import schema
from tests.unit.cli.world import World


def end_leases(url: str, service: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        table = schema.services
        ended = update(table).where(table.c.service == service).values(lease_until=table.c.lease_until - 3_600_000_000)
        connection.execute(ended)
    engine.dispose()


def test_publishers_shows_live_and_expired_entries(world: World) -> None:
    with world.open() as store:
        store.directory.register("old", "u-old", "tcp://10.0.0.9:8866", 60)
        own = [each.service for each in store.directory.live() if each.service != "old"]
    end_leases(world.url, "old")
    found = {each["service"]: each for each in world.run("publishers", "-f", "json").json}
    assert found["old"]["state"] == "ended"
    assert found["old"]["lease_left"] < 0
    assert found["old"]["role"] == "origin"
    assert found["old"]["address"] == "tcp://10.0.0.9:8866"
    assert own == (["api-1"] if world.host is not None else [])
    for name in own:
        assert found[name]["state"] == "live"
        assert 0 < found[name]["lease_left"] <= 60
    output = world.run("publishers", "--forget", "old", "-f", "json")
    assert [each["service"] for each in output.json] == own
    world.run("publishers", "--forget", "old").failed(1, "no service 'old'")


def test_forgetting_a_live_service_logs_that_it_registers_again(fresh: World) -> None:
    with fresh.open() as store:
        store.directory.register("api-7", "u1", "tcp://10.0.0.7:8866", 60)
        store.directory.register("api-7", "u2", "tcp://10.0.0.7:8866", 60)
    output = fresh.run("publishers", "--forget", "api-7")
    assert (output.code, output.out) == (0, "")
    assert "it registers again when it renews" in output.err
    with fresh.open() as store:
        assert store.directory.entries() == []


def test_an_empty_directory(fresh: World) -> None:
    assert fresh.run("publishers", "-f", "json").json == []
    shown = fresh.run("publishers")
    assert (shown.code, shown.out, shown.err) == (0, "", "pubsub-db: no service is in the directory\n")
