"""The endpoint for metrics and readiness, over real HTTP."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pubsub_lib.errors import TransportError
from pubsub_lib.service.endpoint import Endpoint, ServiceMetrics

problems: list[str] = []


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    problems.clear()
    metrics = ServiceMetrics(lambda: {"links": {"handed": 3}}, lambda: {"leases": {"orphans": 1}}, lambda: problems)
    endpoint = Endpoint("127.0.0.1", 0, metrics, lambda: problems)
    endpoint.start()
    yield endpoint
    endpoint.close()


def get(endpoint: Endpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_what_prometheus_reads(endpoint: Endpoint) -> None:
    status, text = get(endpoint, "/metrics")
    assert status == 200
    found = {
        (sample.name, sample.labels.get("what")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("publisher_service_links_total", "handed"): 3.0,
        ("publisher_service_leases", "orphans"): 1.0,
        ("publisher_service_ready", None): 1.0,
    }


def test_ready_says_why_not(endpoint: Endpoint) -> None:
    assert get(endpoint, "/ready") == (200, "ready\n")
    problems.append("the changelog is not being followed")
    assert get(endpoint, "/ready?verbose") == (503, "the changelog is not being followed\n")
    assert "publisher_service_ready 0.0" in get(endpoint, "/metrics")[1]


def test_other_paths_are_not_there(endpoint: Endpoint) -> None:
    assert get(endpoint, "/")[0] == 404


def test_a_port_that_is_taken_is_named(endpoint: Endpoint) -> None:
    metrics = ServiceMetrics(dict, dict, list)
    with pytest.raises(TransportError, match=rf"127\.0\.0\.1:{endpoint.port} .*set metrics_port"):
        Endpoint("127.0.0.1", endpoint.port, metrics, list)


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(TransportError, match="no such host"):
        Endpoint("no such host", 1, ServiceMetrics(dict, dict, list), list)


def test_close_without_start_releases_the_port() -> None:
    metrics = ServiceMetrics(dict, dict, list)
    first = Endpoint("127.0.0.1", 0, metrics, list)
    port = first.port
    first.close()
    second = Endpoint("127.0.0.1", port, metrics, list)
    second.close()
