"""The process of a reconnect storm: many subscribers with many topics, which ask for hellos and then leave.

They are a driver's subscribers without a replica. Their requests count as those of an observer, so that the audit does
not expect journals of them.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from _chaos.messages import Message, Order, Ready, StormTask
from pubsub_lib import Settings, contract, loader
from pubsub_lib.api import Subscriber
from pubsub_lib.core.envelope import OBSERVER, Envelope

DRIVER: Final = "zmq_pubsub_driver"
PATIENCE: Final = 10.0
"""Maximum number of seconds to wait for the connections: a service or the broker may be down."""


def run(task: StormTask, send: Callable[[Message], None], receive: Callable[[], Order | None]) -> None:
    """Connect all subscribers, and stay until an order, or the end of the parent. Raises PubSubError."""
    settings = settings_of(task)
    driver = loader.load(settings.driver, settings.needs())
    topics = topics_of(task)
    connected = threading.Semaphore(0)
    with ExitStack() as stack:
        for number in range(task.subscribers):
            subscriber = contract.subscriber(driver, settings.for_driver())
            stack.callback(subscriber.close)
            subscriber.initialize(
                _ignore, partial(_connected, subscriber, f"{OBSERVER}{task.name}-{number}", topics, connected)
            )
            for topic in topics:
                subscriber.register_topic(topic)
            subscriber.daemonize()
        if all(connected.acquire(timeout=PATIENCE) for _ in range(task.subscribers)):
            send(Ready())
        receive()


def settings_of(task: StormTask) -> Settings:
    """The settings of the subscribers. Raises ConfigError."""
    if task.configuration:
        return Settings.from_file(task.configuration)
    return Settings(store_url="sqlite://", driver=DRIVER, addresses=task.addresses)


def topics_of(task: StormTask) -> tuple[str, ...]:
    """The topics of each subscriber: those that are followed, and others that no object has."""
    others = task.topics - len(task.followed)
    return (*task.followed, *(f"storm-{number}" for number in range(max(0, others))))[: task.topics]


def _ignore(_envelope: Envelope) -> None:
    """A message; the storm is about connections."""


def _connected(subscriber: Subscriber, nonce: str, topics: tuple[str, ...], connected: threading.Semaphore) -> None:
    subscriber.request_hello(nonce, topics)
    connected.release()
