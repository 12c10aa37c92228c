"""Relays on real sockets of this process, below a publisher."""

from typing import Any

import msgspec
from _processes import free_port

from pubsub_lib import Settings, Store, contract, loader
from pubsub_lib.relay.runtime import RelayRuntime
from pubsub_lib.replica.sync_reader import SyncReader
from tests.unit.world import settings

TOPICS = ("t", "u")


def bound(url: str, name: str, **changes: Any) -> Settings:
    """The settings of a publisher or a relay with a TCP address of its own."""
    address = f"tcp://127.0.0.1:{free_port()}"
    given: dict[str, Any] = {
        "driver": "zmq_pubsub_driver", "driver_options": {}, "service_name": name, "bind_address": address,
        "topics": TOPICS, "discovery_interval": 0.0,
    }  # fmt: skip
    return settings(url, **{**given, **changes})


def below(config: Settings, *parents: Settings, **changes: Any) -> Settings:
    """The settings of a replica that has these relays as parents."""
    named = tuple(each.bind_address for each in parents)
    return msgspec.structs.replace(config, bind_address="", service_name="", parents=named, **changes)


def relay_of(config: Settings, reader: SyncReader | Store | None, origin: str = "") -> RelayRuntime:
    """A relay that listens to ``origin``, or to its parents."""
    driver = loader.load(config.driver)
    own = msgspec.structs.replace(config.for_driver(), addresses=(origin,) if origin else ())
    half = contract.subscriber(driver, own)
    return RelayRuntime(config, reader, contract.publisher(driver, config.for_driver()), half, None)
