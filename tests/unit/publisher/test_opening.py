"""``open_publisher`` chooses a Worker or a Publisher by the driver's capabilities."""

from typing import Any, ClassVar

import pytest
from _processes import poll

from pubsub_lib import Publisher, Settings, Store, Worker, loader, open_publisher
from pubsub_lib.api import Capabilities
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import ConfigError, DriverError
from pubsub_lib.publisher import opening
from pubsub_memory import MemoryDriver
from tests.unit.world import settings

BOUND: dict[str, Any] = {"driver": "zmq_pubsub_driver", "driver_options": {}, "bind_address": "tcp://127.0.0.1:1"}
HOP: dict[str, Any] = {"multiproc_driver": "zmq_pubsub_multiproc_driver", "multiproc_socket": "/nowhere/socket"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({**BOUND, **HOP}, Worker),
        (BOUND, Publisher),
        (HOP, Publisher),  # the memory driver is connect-based and needs no service
        ({}, Publisher),
        ({"driver": "db_polling_pubsub_driver", "driver_options": {}, **HOP}, Publisher),
    ],
)
def test_a_bind_based_driver_with_a_hop_gives_a_worker_and_others_a_publisher(
    given: dict[str, Any], kind: type[object], sqlite_url: str
) -> None:
    config = settings(sqlite_url, **given)
    with Store(config) as store:
        opened = open_publisher(config, store)
        assert type(opened) is kind
        assert opening.hands_over(config) == (kind is Worker)
        opened.close()


def test_the_choice_depends_on_the_capability_not_on_the_drivers_name(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bound(MemoryDriver):
        capabilities: ClassVar[Capabilities] = Capabilities(
            bind_based=True, cross_process=False, cross_host=False, ordered=True
        )

    load = loader.load
    monkeypatch.setattr(loader, "load", lambda name, *needs: Bound if name == "memory" else load(name, *needs))
    config = settings(sqlite_url, **HOP)
    with Store(config) as store:
        opened = open_publisher(config, store)
        assert isinstance(opened, Worker)
        opened.close()


def test_the_opened_publisher_sends_commits(config: Settings) -> None:
    received: list[str] = []
    subscriber = loader.load(config.driver).subscriber(config.for_driver())
    subscriber.initialize(lambda envelope: received.append(envelope.topic), lambda: None)
    subscriber.register_topic("t")
    subscriber.daemonize()
    with Store(config) as store, open_publisher(config, store) as sender:
        assert isinstance(sender, Publisher)
        with store.transaction() as tx:
            tx.set("a", "1", 1, topic="t")
        assert sender.counters()["sent"] >= 1
    subscriber.close()


@pytest.mark.parametrize("kind", [Publisher, Worker])
def test_the_opened_publisher_sends_commits_with_their_trace(kind: type[object], sqlite_url: str) -> None:
    config = settings(sqlite_url)
    subscriber = loader.load("memory").subscriber(config.for_driver())
    if kind is Worker:  # the bus of the test is the hop to the publisher service
        hop = {"multiproc_driver": "memory", "multiproc_socket": "/x", "multiproc_options": config.driver_options}
        config = settings(sqlite_url, **BOUND, **hop)
    traces: list[str] = []
    subscriber.initialize(
        lambda envelope: traces.extend(message.link.trace for message in envelope.messages), lambda: None
    )
    subscriber.register_topic(ALL)
    subscriber.daemonize()
    with Store(config) as store, open_publisher(config, store, trace=lambda: "00-1-2-01") as sender:
        assert type(sender) is kind
        with store.transaction() as tx:
            tx.set("a", "1", 1, topic="t")
        assert poll(lambda: bool(traces), 30), "no link is received"
    assert traces == ["00-1-2-01"]
    subscriber.close()


def test_open_publisher_refuses_invalid_settings(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        with pytest.raises(ConfigError, match="stable name"):
            open_publisher(settings(sqlite_url, service_name=""), store)
        with pytest.raises(DriverError, match="is not installed"):
            open_publisher(settings(sqlite_url, driver="nothing"), store)
