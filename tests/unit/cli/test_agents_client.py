"""Which services are asked for agents, and what is made of their answers; the server may be another program."""

import argparse
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest
from _processes import free_port
from cliff.command import Command

from pubsub_lib.cli.agents_client import AgentsClient, seen, staleness
from pubsub_lib.errors import ConfigError, NotFound, TransportError
from tests.unit.cli.test_replica_client import serve as serve_replica
from tests.unit.cli.world import World
from tests.unit.sync.some_agents import agent, announcement
from tests.unit.sync.test_agents_server import Served

serve = serve_replica


@pytest.fixture
def two() -> Iterator[tuple[Served, Served]]:
    made = Served(), Served()
    yield made
    for each in made:
        each.endpoint.close()


def know(served: Served, *names: str, **changes: Any) -> str:
    """Let a service know these agents, below a relay. Returns its URL."""
    announced = announcement("relay", *[agent(each, **changes) for each in names], interval=600.0)
    served.route._registry.receive(announced, served.route._now())
    return f"http://127.0.0.1:{served.endpoint.port}"


def command(config: str, database: str | None = None) -> Command:
    given = argparse.Namespace(config_file=[config] if config else [], config_dir=[], database=database)
    return cast(Command, argparse.Namespace(app_args=given))


def test_answers_are_merged_by_the_last_announcement(two: tuple[Served, Served]) -> None:
    urls = [know(two[0], "a", "b", age=9.0, parent="r1"), know(two[1], "b", "c", age=2.0, parent="r2")]
    found = seen(command(""), urls)
    assert [(each.name, each.parent) for each in found.agents] == [("a", "r1"), ("b", "r2"), ("c", "r2"), ("relay", "")]
    assert [each.service for each in found.services] == ["api-1", "api-1"]


def test_service_that_does_not_answer_is_a_warning_beside_another(
    two: tuple[Served, Served], caplog: pytest.LogCaptureFixture
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with caplog.at_level(logging.WARNING):
        assert len(seen(command(""), [away, know(two[0], "a")]).agents) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith(f"the publisher service at {away} cannot be reached")
    with pytest.raises(TransportError, match=r"cannot be reached .* check that it runs, and its metrics_port"):
        seen(command(""), [away])


def test_agents_without_a_place_are_a_warning(two: tuple[Served, Served], caplog: pytest.LogCaptureFixture) -> None:
    for each in two:
        each.route._registry.receive(announcement("relay", left_out=4), each.route._now())
    with caplog.at_level(logging.WARNING):
        seen(command(""), [know(two[0], "a"), f"http://127.0.0.1:{two[1].endpoint.port}"])
    assert [each.getMessage().partition(",")[0] for each in caplog.records] == ["4 more agents are not listed"]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"use one of GET /metrics, GET /ready\n", "takes no announcements of agents; set serve_syncs = true"),
        (404, b"no such page", "is not a publisher service of this library; give the publisher service's metrics_port"),
        (200, b"[]", "is not a publisher service of this library"),
        (200, b'{"service":"","uuid":"u"}', "is not a publisher service of this library"),
        (200, b'{"agents":[{"name":"\\u0000"}]}', "is not a publisher service of this library"),
        (503, b"all connections are in use\n", r"rejected the request \(503\): all connections are in use"),
    ],
)
def test_answer_of_another_program_is_refused(status: int, body: bytes, words: str, serve: Any) -> None:
    url = serve(status, body).url
    with pytest.raises(TransportError, match=words):
        AgentsClient(url).agents()


def test_invalid_url_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="is not the URL of a publisher service; give http://HOST:PORT, its metrics_port"
    ):
        seen(command(""), ["nonsense"])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that are asked; none answers."""
    urls: list[str] = []

    def agents(client: AgentsClient) -> Any:
        urls.append(client.url)
        raise TransportError("planted")

    monkeypatch.setattr(AgentsClient, "agents", agents)
    return urls


def ask(config: str) -> None:
    with pytest.raises(TransportError, match="planted"):
        seen(command(config), ())


def test_services_in_sync_url_are_asked(asked: list[str], tmp_path: Any) -> None:
    config = tmp_path / "agent.conf"
    config.write_text("[pubsub]\nsync_url = http://h:1, https://proxy/net/sync, http://[::1]:7/sync\n")
    ask(str(config))
    assert asked == ["http://h:1", "https://proxy:443/net", "http://[::1]:7"]


def test_services_in_the_directory_are_asked(asked: list[str], fresh: World) -> None:
    with fresh.open() as store:
        store.directory.register("api-1", "u1", "tcp://10.0.0.1:8866", 60)
        store.directory.register("api-2", "u2", "tcp://[fd00::2]:8866", 60)
        store.directory.register("api-3", "u3", "", 60)
        store.directory.register("relay-1", "u4", "tcp://10.0.0.4:8866", 60, role="relay")
    before = fresh.config.read_text()
    own = (
        "[pubsub]\nstore_url = {}\nservice_name = api-1\n[publisher_service]\nmetrics_address = {}\nmetrics_port = {}\n"
    )
    for address, host in (("10.9.9.9", "10.9.9.9"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("[::1]", "[::1]")):
        fresh.config.write_text(own.format(fresh.url, address, 8870))
        ask(str(fresh.config))
        assert sorted(asked) == sorted([f"http://{host}:8870", "http://[fd00::2]:8870"])
        asked.clear()
    fresh.config.write_text(own.format(fresh.url, "127.0.0.1", 0))
    with pytest.raises(ConfigError, match=r"metrics_port is 0 in .* give --url"):
        seen(command(str(fresh.config)), ())
    fresh.config.write_text(own.format(fresh.url, "127.0.0.1", -1))
    with pytest.raises(ConfigError, match=r"metrics_port is -1 in .* give --url"):
        seen(command(str(fresh.config)), ())
    fresh.config.write_text(before)


def test_directory_without_a_service_is_one_sentence(fresh: World) -> None:
    with pytest.raises(NotFound, match="no live service with an address is in the directory; start one, or give --url"):
        seen(command(str(fresh.config)), ())


def test_staleness_is_a_number_for_programs_and_a_text_for_people() -> None:
    found = [staleness(agent(staleness=each)) for each in (0.04, 3.0, 200.0, None)]
    assert [each.machine_readable() for each in found] == [0.0, 3.0, 200.0, None]
    assert [each.human_readable() for each in found] == ["0 ms", "3.0 s", "3 min", "not synced"]
