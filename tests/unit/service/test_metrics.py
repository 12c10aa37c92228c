"""The service's metrics, over real HTTP."""

import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib import __version__
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.errors import TransportError
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.latency import BOUNDS, Latencies
from pubsub_lib.service.metrics import endpoint_of

problems: list[str] = []


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    problems.clear()
    made = endpoint_of(
        ServiceSettings(metrics_port=0),
        lambda: {"links": {"handed": 3}},
        lambda: {"leases": {"orphans": 1}},
        lambda: {"sent": Latencies((1, 2, *[0] * (len(BOUNDS) - 2), 4), 500.0, 1)},
        lambda: problems,
    )
    made.start()
    yield made
    made.close()


def get(endpoint: Endpoint) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def test_metrics_are_in_prometheus_format(endpoint: Endpoint) -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(get(endpoint))
        for sample in family.samples
    }
    buckets = {key[-1]: value for key, value in found.items() if key[0].endswith("_bucket")}
    assert list(buckets) == [*map(str, BOUNDS), "+Inf"]
    assert [buckets[bound] for bound in ("0.001", "0.002", "60.0", "+Inf")] == [1.0, 3.0, 3.0, 7.0]
    assert {key: value for key, value in found.items() if not key[0].endswith("_bucket")} == {
        ("pubsub_service_links_total", "handed"): 3.0,
        ("pubsub_service_leases", "orphans"): 1.0,
        ("pubsub_service_commit_to_sent_seconds_count",): 7.0,
        ("pubsub_service_commit_to_sent_seconds_sum",): 500.0,
        ("pubsub_service_negative_latencies_total", "sent"): 1.0,
        ("pubsub_service_ready",): 1.0,
        ("pubsub_build_info", __version__): 1.0,
    }
    problems.append("the changelog is not being followed")
    assert "pubsub_service_ready 0.0" in get(endpoint)


def test_port_below_0_takes_a_free_one() -> None:
    made = [endpoint_of(ServiceSettings(metrics_port=-1), dict, dict, dict, list) for _ in range(2)]
    for each in made:
        each.start()
    assert len({each.port for each in made} - {0}) == 2
    for each in made:
        each.close()


def test_used_port_is_named_with_the_services_option(endpoint: Endpoint) -> None:
    second = endpoint_of(ServiceSettings(metrics_port=endpoint.port), dict, dict, dict, list)
    with pytest.raises(TransportError, match=rf"127\.0\.0\.1:{endpoint.port} .*metrics_port in \[publisher_service\]"):
        second.start()


def test_further_routes_are_served() -> None:
    routes = {"GET /status": lambda _query: (200, b"<p>", "text/html")}
    second = endpoint_of(ServiceSettings(metrics_port=0), dict, dict, dict, list, routes=routes)
    second.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{second.port}/status", timeout=60) as answer:
            assert (answer.read(), answer.headers["Content-Type"]) == (b"<p>", "text/html")
    finally:
        second.close()
