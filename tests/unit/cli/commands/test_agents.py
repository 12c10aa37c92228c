"""``pubsub-db agents``."""

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
    announced = announcement(
        "relay-1",
        agent("agent-1", parent="relay-1", topics=("a", "b", "c", "d"), topics_total=6, staleness=12.5, age=3.0),
        agent("agent-2", topics=("",), staleness=None, host="h\x1b[31m", listens_to=("tcp://h:1", "tcp://i:1")),
        interval=600.0,
    )  # fmt: skip
    made.route._registry.receive(announced, made.route._now())
    yield made
    made.endpoint.close()


def url(served: Served) -> str:
    return f"127.0.0.1:{served.endpoint.port}"


def test_agents_are_listed_with_all_that_they_announced(small: World, served: Served) -> None:
    first, second, relay = small.run("agents", "--url", url(served), "-f", "json").json
    assert 3.0 <= first.pop("last_announced") < 100.0
    assert first == {
        "name": "agent-1", "role": "replica", "host": "host-1", "parent": "relay-1", "topics": ["a", "b", "c", "d"],
        "staleness": 12.5, "version": "1.0", "topics_total": 6, "listens_to": [], "address": "", "hops": 1,
        "uuid": "u-agent-1",
    }  # fmt: skip
    assert (second["topics"], second["staleness"], second["host"]) == ([""], None, "h\x1b[31m")
    assert (relay["name"], relay["hops"]) == ("relay-1", 0)


def test_table_for_people_is_short_and_safe(small: World, served: Served) -> None:
    output = small.run("agents", "--url", url(served))
    assert (output.code, output.err) == (0, "")
    assert re.search(
        r"agent-1 +\| replica \| host-1 +\| relay-1 \| a, b, c and 3 more \| 12.5 s +\| \d+\.\d s ago", output.out
    )
    assert re.search(r"h\\x1b\[31m +\| +\| all topics +\| not synced ", output.out)
    assert "u-agent-1" not in output.out
    named = small.run("agents", "--url", url(served), "-c", "name", "-c", "uuid", "-c", "listens_to").out
    assert "u-agent-1" in named
    assert "tcp://h:1, tcp://i:1" in named


@pytest.mark.parametrize("form", ["value", "csv", "json", "yaml", "table"])
def test_agents_are_sorted_by_staleness_and_those_without_one_are_last(form: str, small: World, served: Served) -> None:
    arguments = ("agents", "--url", url(served), "--sort-column", "staleness", "-c", "name", "-f", form)
    for order, wanted in (
        ((), ["relay-1", "agent-1", "agent-2"]),
        (("--sort-descending",), ["agent-2", "agent-1", "relay-1"]),
    ):
        output = small.run(*arguments, *order)
        assert output.err == ""
        assert re.findall(r"\w+-\d", output.out) == wanted


def test_service_without_agents(small: World) -> None:
    served = Served()
    try:
        output = small.run("agents", "--url", url(served))
        assert (output.code, output.out, output.err) == (0, "", "pubsub-db: no agent has announced itself\n")
        assert small.run("agents", "--url", url(served), "-f", "json").json == []
    finally:
        served.endpoint.close()


def test_errors(small: World) -> None:
    small.run("agents", "--url", "nonsense").failed(2, "'nonsense' is not the URL of a publisher service")
    small.run("agents", "--url", f"127.0.0.1:{free_port()}").failed(3, "cannot be reached")
    small.run("agents").failed(1, "no live service with an address is in the directory", "give --url")
    small.run("agents", "--url", "127.0.0.1:1", "-c", "nothing").failed(2, "there is no column 'nothing'")
