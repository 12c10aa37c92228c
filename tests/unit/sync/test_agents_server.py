"""The routes of announcements at a real endpoint: answers, refusals, counters."""

import http.client
import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.http_routes import POST_HEADER
from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import MAX_ANNOUNCEMENT_BYTES, decode_accepted, decode_agents, encode
from pubsub_lib.sync.agents_server import GET_ROUTE, POST_ROUTE, AgentsRoute
from tests.unit.sync.some_agents import agent, announcement

LONG = 120.0


class Nothing(Collector):
    def collect(self) -> Iterable[Metric]:
        return ()


class Served:
    """An endpoint with the routes."""

    def __init__(self, max_agents: int = 4096) -> None:
        self.route = AgentsRoute(
            AgentRegistry("u-own", max_agents=max_agents), "api-1", "origin", "tcp://h:1", lambda: ["u-above"]
        )
        self.endpoint = Endpoint(
            "127.0.0.1",
            0,
            Nothing(),
            list,
            "the_port",
            {GET_ROUTE: self.route.answer},
            streams={POST_ROUTE: self.route},
        )
        self.endpoint.start()

    def ask(
        self, method: str, body: bytes = b"", host: str = "localhost", header: bool = True, length: int | None = None
    ) -> tuple[int, bytes]:
        """``length``: the announced one, instead of that of the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.endpoint.port, timeout=LONG)
        headers = {"Host": host, **({POST_HEADER: "agents"} if header else {})}
        if length is not None:
            headers["Content-Length"] = str(length)
        try:
            connection.request(method, "/agents", body, headers)
            with connection.getresponse() as answer:
                return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.endpoint.close()


def test_announced_agents_are_listed(served: Served) -> None:
    status, body = served.ask("POST", encode(announcement("relay-1", agent("a"))))
    assert (status, decode_accepted(body).above) == (200, ["u-own", "u-above"])
    status, body = served.ask("GET")
    found = decode_agents(body)
    assert status == 200
    assert (found.service, found.uuid, found.role, found.address) == ("api-1", "u-own", "origin", "tcp://h:1")
    assert [(each.name, each.hops) for each in found.agents] == [("a", 1), ("relay-1", 0)]
    assert json.loads(body)["agents"][0]["topics"] == ["t"]
    assert served.route.counters() == {"accepted": 1, "refused": 0, "full": 0}
    assert served.route.gauges()["known"] == 2.0


def test_hostile_requests_get_one_sentence_and_change_nothing(served: Served) -> None:
    good = encode(announcement())
    cases = (
        (served.ask("POST", b"\xff{"), 400, b"an announcement cannot be read: "),
        (served.ask("POST", good[:-5]), 400, b"an announcement cannot be read: "),
        (served.ask("POST", good, host="evil.example"), 403, b"the Host header does not name this endpoint"),
        (served.ask("POST", good, header=False), 403, b"a POST request needs the header"),
        (served.ask("GET", host="evil.example"), 403, b"the Host header does not name this endpoint"),
        (served.ask("POST", length=MAX_ANNOUNCEMENT_BYTES + 1), 413, b"a body has a Content-Length of at most"),
    )
    for (status, text), wanted, words in cases:
        assert status == wanted
        assert text.startswith(words)
        assert text.count(b"\n") == 1
    assert served.route.counters() == {"accepted": 0, "refused": 2, "full": 0}
    assert decode_agents(served.ask("GET")[1]).agents == []


def test_agent_without_a_place_gets_503() -> None:
    served = Served(max_agents=1)
    try:
        assert served.ask("POST", encode(announcement("a")))[0] == 200
        status, text = served.ask("POST", encode(announcement("b")))
        assert status == 503
        assert text.endswith(b"has no place for another one\n")
        assert served.ask("POST", encode(announcement("a")))[0] == 200
        assert served.route.counters() == {"accepted": 2, "refused": 0, "full": 1}
    finally:
        served.endpoint.close()


def test_thousand_agents_are_known_to_one_service(served: Served) -> None:
    bodies = [encode(announcement(f"agent-{each:04}", interval=600.0)) for each in range(1000)]
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: served.ask("POST", body)[0], bodies))
    assert answers == [200] * 1000, time.monotonic() - begun
    found = decode_agents(served.ask("GET")[1])
    assert [each.name for each in found.agents] == [f"agent-{each:04}" for each in range(1000)]
    assert served.route.gauges()["known"] == 1000.0
