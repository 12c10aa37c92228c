"""The drivers with which the demo can send: a further one is one more entry in ``DRIVERS``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import msgspec
from _broker import NatsServer
from _redis_server import PrivateRedis


@contextmanager
def _no_broker() -> Iterator[str]:
    yield ""


@contextmanager
def _nats() -> Iterator[str]:
    with NatsServer() as server:
        yield f"[pubsub_nats]\nservers = {server.url}\n"


@contextmanager
def _redis() -> Iterator[str]:
    with PrivateRedis() as server:
        yield f"[pubsub_redis]\nurl = {server.url}\n"


class DemoDriver(msgspec.Struct, frozen=True):
    """One driver. ``broker``: runs what the driver needs, and gives the lines of its group in an INI file; raises
    PubSubError when it cannot be had.
    """

    name: str
    """Its registered name."""
    shown: str
    """Its transport, for people."""
    broker: Callable[[], AbstractContextManager[str]] = _no_broker
    database: str = "sqlite"
    """The database of the run, by its name in ``_databases``."""
    unsent: str = "unsent"
    """What a committed change is called that the service has not sent, for people."""


ZMQ: Final = "zmq"
DRIVERS: Final[Mapping[str, DemoDriver]] = {
    ZMQ: DemoDriver("zmq_pubsub_driver", "ZeroMQ"),
    "nats": DemoDriver("nats_pubsub_driver", "NATS", _nats),
    "redis": DemoDriver("redis_pubsub_driver", "Redis", _redis),
    "pgnotify": DemoDriver("pgnotify_pubsub_driver", "NOTIFY", database="postgresql", unsent="unannounced"),
}
"""By the value of ``--driver``."""
