"""``pubsub-db tree``."""

import re
from collections.abc import Iterator

import pytest
from _processes import free_port

from tests.unit.cli.world import World
from tests.unit.sync.some_agents import agent, announcement
from tests.unit.sync.test_agents_server import Served


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    announced = announcement("x", agent("relay-1", role="relay"), agent("agent-1", parent="relay-1"), interval=600.0)
    made.route._registry.receive(announced, made.route._now())
    yield made
    made.endpoint.close()


def test_tree_is_indented_for_people(small: World, served: Served) -> None:
    output = small.run("tree", "--url", f"127.0.0.1:{served.endpoint.port}")
    assert (output.code, output.err) == (0, "")
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in output.out.splitlines()[3:-1]]
    names = [line.split("|")[1].rstrip() for line in output.out.splitlines()[3:-1]]
    assert names == [" api-1", "   relay-1", "     agent-1", "   x"]
    assert cells[0] == ["origin", "3", "", "", "", ""]
    assert cells[1][:3] == ["relay", "1", "500 ms"]
    assert re.fullmatch(r"\d.* ago", cells[1][3])
    assert cells[1][4:] == ["host-1", "1.0"]
    assert [each[0] for each in cells] == ["origin", "relay", "replica", "replica"]


def test_tree_has_its_depths_for_programs(small: World, served: Served) -> None:
    found = small.run("tree", "--url", f"127.0.0.1:{served.endpoint.port}", "-f", "json").json
    assert [(each["name"], each["depth"], each["below"], each["staleness"]) for each in found] == [
        ("api-1", 0, 3, None), ("relay-1", 1, 1, 0.5), ("agent-1", 2, 0, 0.5), ("x", 1, 0, 0.5),
    ]  # fmt: skip
    assert found[0]["uuid"] == ""
    assert found[2]["uuid"] == "u-agent-1"
    named = small.run("tree", "--url", f"127.0.0.1:{served.endpoint.port}", "-c", "depth", "-c", "name")
    assert "| depth |" in named.out


def test_errors(small: World) -> None:
    small.run("tree", "--url", "nonsense").failed(2, "'nonsense' is not the URL of a publisher service")
    small.run("tree", "--url", f"127.0.0.1:{free_port()}").failed(3, "cannot be reached")
    small.run("tree").failed(1, "no live service with an address is in the directory", "give --url")
