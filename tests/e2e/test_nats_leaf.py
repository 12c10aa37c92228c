"""A replica at a leaf node, with the servers' files of ``docs/nats.md``: it receives, and converges when the hub was
killed. Programs on its site cannot publish changes at the hub.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from _broker import NatsServer
from _processes import free_port, poll

from pubsub_lib import Publisher, Replica, Store
from tests.conformance.nats_wire import RawNats, server
from tests.e2e.service_host import LONG
from tests.e2e.test_nats import LIMITS, assert_equal, put, settings
from tests.e2e.test_real_sockets import TOPICS

PAGE = Path(__file__).parents[2] / "docs" / "nats.md"


def files() -> dict[str, str]:
    """The servers' files in the page, by name."""
    return dict(re.findall(r"^```text\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[NatsServer, NatsServer]]:
    """The hub, and the server of a site."""
    monkeypatch.setenv("PUBLISHER_PASSWORD", "own")
    monkeypatch.setenv("SITE_PASSWORD", "secret")
    found, line = files(), f"127.0.0.1:{free_port()}"
    assert sorted(found) == ["hub.conf", "site.conf"]
    assert all("10.0.0.1:7422" in text for text in found.values())
    configured = {name: text.replace("10.0.0.1:7422", line) for name, text in found.items()}
    with server(configured["hub.conf"]) as hub, server(configured["site.conf"]) as site:
        yield hub, site


def test_replica_at_a_leaf_node_receives_and_converges_after_the_hub_was_killed(
    sqlite_url: str, sites: tuple[NatsServer, NatsServer]
) -> None:
    hub, site = sites
    at_hub = settings(sqlite_url, hub.url, user="publisher", password="own")
    with ExitStack() as ending:
        store = ending.enter_context(Store(sqlite_url, limits=LIMITS))
        publisher = ending.enter_context(Publisher(at_hub, store))
        replica = ending.enter_context(Replica(settings(sqlite_url, site.url), TOPICS))
        replica.wait_synced(LONG)

        def receives() -> bool:
            """Whether a further commit was applied as it was received, and not by a sync."""
            before = replica.status()
            put(store, before.driver["received"], 10)
            replica.wait_for(store.read_heads(()).store.position, LONG)
            after = replica.status()
            return not after.polling and after.counters.applied > before.counters.applied

        assert poll(receives, LONG), replica.status()
        hub.kill()
        put(store, 1, 10)
        assert_equal(replica, store)
        hub.restart()
        assert poll(lambda: publisher.counters()["connected"] == 2, LONG)
        assert poll(receives, LONG), replica.status()
        assert_equal(replica, store)
        assert replica.status().driver["connected"] == 1, "its own server was never down"


def test_programs_of_a_site_cannot_publish_changes_at_the_hub(
    sqlite_url: str, sites: tuple[NatsServer, NatsServer]
) -> None:
    hub, site = sites
    at_hub = settings(sqlite_url, hub.url, user="publisher", password="own")
    config = settings(sqlite_url, hub.url, user="site", password="secret")
    with ExitStack() as ending:
        store = ending.enter_context(Store(sqlite_url, limits=LIMITS))
        publisher = ending.enter_context(Publisher(at_hub, store))
        replica = ending.enter_context(Replica(config, TOPICS))
        replica.wait_synced(LONG)
        stranger = RawNats(site.port)
        ending.callback(stranger.close)

        def refused() -> int:
            return publisher.counters()["foreign"]

        def asks() -> bool:
            """Whether the site is connected: the hub refuses a request without a reply subject."""
            stranger.publish(b"pubsub.ask", b"x")
            return refused() > 0

        assert poll(asks, LONG), publisher.counters()
        for number in range(10):
            stranger.publish(f"pubsub.data.{TOPICS[0]}".encode(), b"garbage")
            stranger.publish(b"pubsub.hello", b"garbage")
            before = refused()
            stranger.publish(b"pubsub.ask", b"x")
            assert poll(lambda before=before: refused() > before, LONG)  # type: ignore[misc]
            put(store, number, 10)
        assert_equal(replica, store)
        driver = replica.status().driver
        assert sum(driver[each] for each in ("truncated", "foreign", "oversized", "version")) == 0, driver
