"""A web page in a browser of this host cannot request a resync of a controller, nor read its objects."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from _processes import free_port, poll

from pubsub_lib.http_routes import POST_HEADER
from tests.e2e.service_host import LONG, Host, answer, write

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": "0"}
ANOTHER = "http://evil.example"
POSTS = {
    "form": FORM,
    "form of another site": {**FORM, "Origin": ANOTHER, "Referer": f"{ANOTHER}/page"},
    "script of another site": {"Content-Type": "text/plain", "Content-Length": "0", "Origin": ANOTHER},
    "name of its own": {"Host": "evil.example", "Content-Length": "0", POST_HEADER: "1"},
}


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path / "host", sqlite_url, replica_metrics_port=free_port())
    yield found
    found.close()


def ask(port: int, method: str, target: str, headers: dict[str, str]) -> tuple[int, str]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.request(method, target, headers=headers)
        received = client.getresponse()
        return received.status, received.read().decode()
    finally:
        client.close()


def requested(port: int) -> float:
    """The number of topics that a controller has read again because a request wanted it."""
    status, text = ask(port, "GET", "/metrics", {})
    assert status == 200
    begin = 'pubsub_replica_syncs_total{cause="asked",kind="full"} '
    return next((float(line.removeprefix(begin)) for line in text.splitlines() if line.startswith(begin)), 0.0)


def test_post_of_a_web_page_causes_no_sync_of_a_controller(host: Host) -> None:
    port = host.settings.replica_metrics_port
    assert port is not None
    host.service()
    write(host.worker(), 5)
    assert answer(host.controller()) == "synced\n"
    for name, headers in POSTS.items():
        assert ask(port, "POST", "/resync", headers)[0] == 403, name
    for target in ("/objects", "/metrics", "/ready"):
        assert ask(port, "GET", target, {"Host": "evil.example"})[0] == 403
    assert requested(port) == 0
    assert ask(port, "POST", "/resync", {POST_HEADER: "1", "Content-Length": "0"})[0] == 200
    assert poll(lambda: requested(port) > 0, LONG), "the number shows a resync"
