"""The drivers with which the demo and ``tools/chaos`` can send: a further one is one more entry in ``DRIVERS``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from _broker import Broker, NatsServer
from _redis_server import PrivateRedis


class DemoDriver(msgspec.Struct, frozen=True):
    """One driver."""

    name: str
    """Its registered name."""
    shown: str
    """Its transport, for people."""
    server: Callable[[], Broker] | None = None
    """Makes the private broker of the driver; None: it needs none."""
    group: str = ""
    """The lines of its group in an INI file, with ``{port}`` for the port of the broker."""
    database: str = "sqlite"
    """The database of the run, by its name in ``_databases``."""
    binds: bool = False
    """Whether a publisher binds an address, so that relays can be between the service and replicas."""
    unsent: str = "unsent"
    """What a committed change is called that the service has not sent, for people."""

    @contextmanager
    def broker(self) -> Iterator[str]:
        """Run the broker, and give the lines of its group. Raises PubSubError when it cannot be had."""
        if self.server is None:
            yield ""
            return
        with self.server() as server:
            yield self.lines(server.port)

    def lines(self, port: int) -> str:
        """The lines of its group for a broker at this port of 127.0.0.1; "" for a driver without one."""
        return self.group.format(port=port)


ZMQ: Final = "zmq"
DRIVERS: Final[Mapping[str, DemoDriver]] = {
    ZMQ: DemoDriver("zmq_pubsub_driver", "ZeroMQ", binds=True),
    "nats": DemoDriver("nats_pubsub_driver", "NATS", NatsServer, "[pubsub_nats]\nservers = nats://127.0.0.1:{port}\n"),
    "redis": DemoDriver(
        "redis_pubsub_driver", "Redis", PrivateRedis, "[pubsub_redis]\nurl = redis://127.0.0.1:{port}\n"
    ),
    "pgnotify": DemoDriver("pgnotify_pubsub_driver", "NOTIFY", database="postgresql", unsent="unannounced"),
}
"""By the value of ``--driver``."""
