"""``pubsub-db send``."""

import socket
from pathlib import Path

import pytest

from pubsub_lib import Replica, Settings
from pubsub_lib.cli.commands import send
from pubsub_lib.cli.commands.send import TABLE
from tests.unit.cli.world import World


def test_event_arrives_and_is_deleted(world: World) -> None:
    before = world.head
    output = world.run("send", "--topic", "tenant-1", "--wait", "30", "-f", "json").json
    assert (output["topic"], output["position"]) == ("tenant-1", before + 1)
    assert output["key"].startswith(f"{socket.gethostname()}-")
    assert output["arrived_ms"] > 0
    assert ("the service 'api-1'" in output["told"]) == (world.host is not None)
    assert (world.contents(), world.head) == ({}, before + 2)


def test_keep_leaves_the_event(world: World) -> None:
    shown = world.run("send", "--keep", "--value", '{"a": 1}')
    assert shown.code == 0
    assert "| arrived_ms | None" in shown.out
    ((table, key),) = world.contents()
    assert (table, world.contents()[table, key]) == (TABLE, ("default", {"a": 1}))
    again = world.run("send", "--value", '{"a": 1}', "-f", "json").json
    assert again["key"] != key
    assert world.contents() == {(TABLE, key): ("default", {"a": 1})}, "the command deletes only its own event"


def test_wait_timeout_when_the_event_does_not_arrive(small: World) -> None:
    small.run("send", "--wait", "0.000001").failed(3, "first sync")
    assert small.contents() == {}


def test_test_replica_is_not_the_replica_of_the_configuration(
    small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller with the same file has the port for metrics, and the name in the journal and the announcements."""
    intervals: list[float] = []

    def replica(settings: Settings, topics: list[str], *, default_topic: bool) -> Replica:
        intervals.append(settings.announce_interval)
        return Replica(settings, topics, default_topic=default_topic)

    monkeypatch.setattr(send, "Replica", replica)
    config = tmp_path / "net.conf"
    with socket.create_server(("127.0.0.1", 0)) as controller:
        config.write_text(
            f"{small.config.read_text()}replica_metrics_port = {controller.getsockname()[1]}\n"
            f"replica_name = controller-1\njournal_folder = {tmp_path / 'journal'}\n"
        )
        assert small.run("--config-file", config, "send", "--wait", "30", "-f", "json").json["arrived_ms"] > 0
    assert not (tmp_path / "journal").exists()
    assert intervals == [0.0]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_invalid_wait_and_value_are_rejected(seconds: str, small: World) -> None:
    small.run("send", f"--wait={seconds}").failed(2, "give a number of seconds above 0")
    small.run("send", "--value", "x").failed(2, "is not valid JSON")
