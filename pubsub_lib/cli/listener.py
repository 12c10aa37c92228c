"""Receives the messages that replicas receive: a subscriber of the configured driver, while a command runs."""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from pubsub_lib import contract, loader
from pubsub_lib.api import Subscriber
from pubsub_lib.core.envelope import OBSERVER, Envelope, Hello
from pubsub_lib.core.model import ALL
from pubsub_lib.core.request_portions import cut
from pubsub_lib.replica.discovery import Discovery, discovery_of
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store

CLOSE_TIMEOUT: Final = 2.0
"""Seconds to wait at the end for a thread that runs a query."""

_NEEDS: Final = {
    "cross_process": "pubsub-db, which is a separate process",
    "fan_out": "pubsub-db, which listens in addition to the replicas",
}


class Listener:
    """A running subscriber. Any thread may call."""

    def __init__(self, subscriber: Subscriber, source: str, discovery: Discovery | None, fixed: Sequence[str]) -> None:
        self._subscriber = subscriber
        self._discovery = discovery
        self._fixed = tuple(fixed)
        self.source = source
        """The driver's name."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the publishers; empty for a driver without addresses."""
        found = () if self._discovery is None else self._discovery.addresses
        return tuple(dict.fromkeys((*self._fixed, *found)))

    def ask(self, topics: Collection[str]) -> list[str]:
        """Ask every publisher for a hello reply about these topics. Returns the nonces of the hello requests.

        Raises TransportError.
        """
        nonces = []
        for portion in cut(topics):
            nonces.append(OBSERVER + secrets.token_hex(12))
            self._subscriber.request_hello(nonces[-1], portion)
        return nonces

    def counters(self) -> Mapping[str, int]:
        """The driver's counters."""
        return self._subscriber.counters()


@contextmanager
def listening(
    settings: Settings, store: Store, topics: Sequence[str], on_envelope: Callable[[Envelope], None]
) -> Iterator[Listener]:
    """Receive these topics (``ALL``: all topics) while the block runs.

    ``on_envelope`` is called on the driver's thread. Publishers are those of the settings and those in the directory.
    Raises ConfigError, DriverError (a driver without delivery to other processes), TransportError, StoreError.
    """
    settings = msgspec.structs.replace(settings, parents=())  # what all publishers send is to be shown
    driver = loader.load(settings.driver, {**settings.needs(), **_NEEDS})
    subscriber = contract.subscriber(driver, settings.for_driver())
    discovery = None
    fixed = settings.fixed_addresses if driver.capabilities.bind_based else ()
    try:
        subscriber.initialize(on_envelope, lambda: None)
        for topic in topics:
            subscriber.register_topic(topic)
        if driver.capabilities.bind_based and settings.discovery_interval > 0:
            discovery = discovery_of(settings, store.directory.live, subscriber)
            discovery.step(time.monotonic())  # at once, so that the first hello request reaches all registered services
        subscriber.daemonize()
        if discovery is not None:
            discovery.start()
        yield Listener(subscriber, driver.name, discovery, fixed)
    finally:
        if discovery is not None:
            # Wait for a running query before the caller closes the store: its connection would be left open.
            discovery.close(CLOSE_TIMEOUT)
        subscriber.close()


class Answer(msgspec.Struct, frozen=True):
    """A publisher's hello reply, and the seconds since the hello request."""

    service: str
    hello: Hello
    seconds: float


def ask_services(settings: Settings, store: Store, uuids: Collection[str], timeout: float) -> dict[str, Answer]:
    """Ask the publishers with these identities how far they have read the store. Returns their answers by identity.

    Blocks until all have answered, for at most ``timeout`` seconds. Raises as :func:`listening`.
    """
    answers: dict[str, Answer] = {}
    changed = threading.Condition()
    asked: dict[str, float] = {}

    def receive(envelope: Envelope) -> None:
        hello = envelope.hello
        if hello is None or hello.nonce not in asked:
            return
        with changed:
            seconds = time.monotonic() - asked[hello.nonce]
            answers.setdefault(envelope.uuid, Answer(envelope.service, hello, seconds))
            changed.notify_all()

    with listening(settings, store, [], receive) as listener:
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0 and not answers.keys() >= set(uuids):
            # Repeated, because a request that is sent before a connection is established is lost.
            now = time.monotonic()
            asked.update(dict.fromkeys(listener.ask([ALL]), now))
            with changed:
                changed.wait_for(lambda: answers.keys() >= set(uuids), min(left, 0.25))
    return answers
