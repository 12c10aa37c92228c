"""``pubsub-db bind``."""

import socket

import pytest

from tests.unit.cli.world import World, fill


def test_bind_sets_this_host_or_another_host(world: World) -> None:
    with world.open() as store:
        fill(store)
    before = world.head
    output = world.run("bind", "p1", "-f", "json")
    assert output.json == {"table": "lport", "key": "p1", "topic": "tenant-1", "version": before + 1, "changed": True}
    assert world.value("lport", "p1") == {"switch": "s1", "chassis": socket.gethostname()}
    assert "| changed | True" in world.run("bind", "p1", "--host", "host-9").out
    assert world.value("lport", "p1") == {"switch": "s1", "chassis": "host-9"}


def test_other_names(small: World) -> None:
    small.run("add", "port", "p1", '{"mac": "a"}')
    small.run("bind", "p1", "--table", "port", "--member", "at", "--host", "h")
    assert small.value("port", "p1") == {"mac": "a", "at": "h"}


def test_bind_of_a_missing_port_fails(world: World) -> None:
    world.run("bind", "p9").failed(1, "update of lport 'p9': there is no such object; see pubsub-db ls lport")


def test_help_of_bind_does_not_depend_on_the_host(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    here = small.run("bind", "--help")
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert here.code == 0
    assert small.run("bind", "--help").out == here.out
