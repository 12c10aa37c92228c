"""The contract of a driver: what a publisher and a subscriber must do, whatever carries their bytes.

Named after Dragonflow's publish-subscribe spec (``send_event``, ``register_topic``, ``register_listen_address``,
``daemonize``). Each "must" here has a test of the same name in ``pubsub_lib.testing.conformance``.
A driver moves envelopes; it never decides anything about them. It is registered in the entry-point group
``pubsub_lib.drivers`` as one class derived from :class:`Driver`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import msgspec

from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.masking import masked_fields, masked_repr


class Capabilities(msgspec.Struct, frozen=True):
    """What a driver declares about itself. The loader refuses a driver that lacks what a configuration needs."""

    bind_based: bool
    """One publisher per host and address (others hand over to it); False: every process connects by itself."""
    cross_process: bool
    """Publisher and subscriber may live in different processes of one host."""
    cross_host: bool
    """They may live on different hosts."""
    ordered: bool
    """Envelopes of one publisher on one topic never overtake each other."""
    carries_envelopes: bool = True
    """False: ``send_event`` has nothing to do because subscribers read the changelog themselves."""
    needs_store: bool = False
    """The subscriber must be given the store's URL (it polls)."""
    fan_out: bool = True
    """Every subscriber hears every publisher, and may ask it for hellos. False: a hop between processes, where the one
    subscriber of an address takes what many publishers hand over, and nobody is asked."""
    connections: bool = True
    """Its halves have connections to each other, which may be lost and come back. False: there is nothing between them
    that could be cut (subscribers read the database), and ``on_connected`` is never called."""


class DriverSettings(msgspec.Struct, frozen=True):
    """What the library hands to every driver. ``options`` are the driver's own, already checked and frozen."""

    limits: Limits = Limits()
    store_url: str = ""
    addresses: tuple[str, ...] = ()
    """Where publishers listen (a subscriber registers these itself at ``initialize``)."""
    bind_address: str = ""
    options: Mapping[str, object] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        """Without passwords: logs and tracebacks show it."""
        return masked_repr(self.__struct_fields__, self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich."""
        return masked_fields(self.__struct_fields__, self)


OnEnvelope = Callable[[Envelope], None]
OnHelloRequest = Callable[[HelloRequest], None]
OnConnected = Callable[[], None]


class Publisher(ABC):
    """The sending half. All methods may be called from any thread after ``initialize``, one at a time per caller;
    the driver must lock where its transport needs it."""

    @abstractmethod
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Bind or connect. Must be called once, before anything else, in the process that sends.

        ``on_hello_request`` is called on a thread of the driver for every question of a subscriber; it is quick and
        must not be called while a lock is held that ``send_event`` needs. What it raises must be caught and counted.

        ``on_connected`` is called in the same way, each time that a subscriber (or the broker) is connected for the
        first time or again, as soon as an envelope that is sent now can reach it: after its subscriptions arrived,
        where the driver sees them. Several connections at nearly the same time may be one call, and one connection may
        be several calls. A driver without ``Capabilities.connections`` and a hop (``fan_out=False``) never call it.
        The driver must connect again by itself, for as long as it is open; the caller does nothing for it.
        Raises TransportError when the address cannot be had (naming the address and the way out).
        """

    @abstractmethod
    def send_event(self, envelope: Envelope) -> None:
        """Send one envelope to every subscriber of ``envelope.topic`` and to those of everything; a hello reply
        (``envelope.hello.nonce``) only to its asker, and any other envelope whose topic is ``ALL`` (a broadcast hello)
        to every subscriber, whatever it registered.

        Must not block longer than 1 s, and must never lose an envelope silently *before* handing it to the
        transport: raises TransportError when it is not initialized, closed, or the transport refuses, and
        FrameError("oversized") when it breaks ``limits.max_frame_bytes``. Loss behind that point is allowed and
        must be visible in ``counters`` where the driver can see it. Must be refused with TransportError in a process
        other than the one that initialized it (after fork).
        """

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """What happened since ``initialize``: at least ``sent`` (envelopes). Any thread, does not block."""

    @abstractmethod
    def close(self) -> None:
        """Release everything within 2 s. Must be idempotent and safe from any thread."""


class Subscriber(ABC):
    """The receiving half. All methods may be called from any thread, also before ``daemonize`` and while running."""

    @abstractmethod
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """Prepare to receive. ``on_envelope`` is called on the receiving thread, one call at a time, per envelope.

        ``on_connected`` is called on a thread of the driver, after ``daemonize``, each time that a connection to a
        publisher (or the broker) is there for the first time or again, and must come after everything that is
        registered was subscribed to on it: a ``request_hello`` that follows must be answered, and what is published
        after that answer must arrive. It is quick and does not block; what it raises must be caught and counted as
        ``callback_errors``. Several connections at nearly the same time may be one call, and one connection may be
        several calls. A driver without ``Capabilities.connections`` and a hop (``fan_out=False``) never call it. The
        driver must connect and subscribe again by itself, for as long as it is open; the caller does nothing for it.

        Bad input (truncated, oversized, foreign, other major version) must be counted in ``counters`` by its reason
        and dropped, never raised and never end the thread. What ``on_envelope`` raises must be caught, counted as
        ``callback_errors``, and must not end the thread either.
        """

    @abstractmethod
    def register_topic(self, topic: str) -> None:
        """Also receive this topic; ``ALL`` for everything. Must be exact: ``tenant-1`` never receives ``tenant-10``.
        Takes effect within a bounded time; what was published before that need not arrive. Idempotent."""

    @abstractmethod
    def unregister_topic(self, topic: str) -> None:
        """Stop receiving this topic; an envelope already on its way may still arrive once. Idempotent."""

    @abstractmethod
    def register_listen_address(self, address: str) -> None:
        """Also listen to the publisher at this address (ignored by drivers that need none). Idempotent."""

    @abstractmethod
    def unregister_listen_address(self, address: str) -> None:
        """Stop listening to this address. Idempotent."""

    @abstractmethod
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """Ask every publisher for a hello reply about these topics. The answers must reach this subscriber alone, as
        envelopes whose ``hello.nonce`` is this nonce. Must not block; a publisher that cannot answer stays silent."""

    @abstractmethod
    def daemonize(self) -> None:
        """Start the receiving thread (a daemon thread) and return. Must be called once, after ``initialize``, and must
        not need a connection: while no publisher (or broker) is there the driver tries again in the background.
        After a fork the child's copy is closed: it raises TransportError and must not disturb the parent's."""

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """What happened since ``initialize``: at least ``received``, ``callback_errors`` and one count per drop
        reason (``truncated``, ``oversized``, ``version``, ``foreign``, ``overflow``). Any thread, does not block."""

    @abstractmethod
    def close(self) -> None:
        """Stop the receiving thread and release everything within 2 s. ``on_envelope`` must not be called after it
        returned. Must be idempotent, and safe from any thread, the receiving thread included."""


class Driver(ABC):
    """One plug-in: its name, its capabilities, and how to make its two halves."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    @classmethod
    @abstractmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A new publisher, not yet initialized. Raises ConfigError for options it cannot use."""

    @classmethod
    @abstractmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A new subscriber, not yet initialized. Raises ConfigError for options it cannot use."""
