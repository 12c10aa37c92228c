"""``pubsub-db send``."""

import socket

import pytest

from pubsub_lib.cli.commands.send import TABLE
from tests.unit.cli.world import World


def test_it_arrives_and_leaves_nothing_behind(world: World) -> None:
    before = world.head
    said = world.run("send", "--topic", "tenant-1", "--wait", "30", "-f", "json").json
    assert (said["topic"], said["position"]) == ("tenant-1", before + 1)
    assert said["key"].startswith(f"{socket.gethostname()}-")
    assert said["arrived_ms"] > 0
    assert ("the service 'api-1'" in said["told"]) == (world.host is not None)
    assert (world.contents(), world.head) == ({}, before + 2)


def test_one_that_stays(world: World) -> None:
    shown = world.run("send", "--keep", "--value", '{"a": 1}')
    assert shown.code == 0
    assert "| arrived_ms | None" in shown.out
    ((table, key),) = world.contents()
    assert (table, world.contents()[table, key]) == (TABLE, ("default", {"a": 1}))
    again = world.run("send", "--value", '{"a": 1}', "-f", "json").json
    assert again["key"] != key
    assert world.contents() == {(TABLE, key): ("default", {"a": 1})}, "it takes away what it wrote, and nothing else"


def test_it_does_not_arrive(small: World) -> None:
    small.run("send", "--wait", "0.000001").failed(3, "first sync")
    assert small.contents() == {}


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_wait_that_is_none(seconds: str, small: World) -> None:
    small.run("send", f"--wait={seconds}").failed(2, "give seconds above 0")
    small.run("send", "--value", "x").failed(2, "is no JSON")
