"""The broker of a run: a private server with low limits, so that it cuts off a slow consumer within seconds."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from _broker import Broker, NatsServer
from _redis_server import PrivateRedis


class LowLimits(msgspec.Struct, frozen=True):
    """How to make a broker with low limits. ``cut_off``: the words in its log when it cuts off a slow consumer."""

    make: Callable[[], Broker]
    cut_off: str


BROKERS: Final[Mapping[str, LowLimits]] = {
    "nats": LowLimits(lambda: NatsServer("max_pending: 2000000\nwrite_deadline: '1s'\n"), "Slow Consumer Detected"),
    "redis": LowLimits(
        lambda: PrivateRedis({"client-output-buffer-limit": "pubsub 2mb 1mb 1"}), "overcoming of output buffer limits"
    ),
}
"""By driver; the other drivers need no broker."""


@contextmanager
def opened(driver: str) -> Iterator[Broker | None]:
    """The running broker of a driver; None: it needs none. Raises LeftOutError, ChildError."""
    if driver not in BROKERS:
        yield None
        return
    with BROKERS[driver].make() as broker:
        yield broker


def cut_off(driver: str, broker: Broker | None) -> int:
    """How often the broker has ended the connection of a slow consumer so far."""
    return 0 if broker is None else broker.log.read_text(errors="replace").count(BROKERS[driver].cut_off)
