"""The contract of a driver: the duties of a publisher and a subscriber, for any transport.

Named after Dragonflow's publish-subscribe spec (``send_event``, ``register_topic``, ``register_listen_address``,
``daemonize``). Each "must" here has a test of the same name in ``pubsub_lib.testing.conformance``.
A driver transports envelopes; it decides nothing about them. It is registered in the entry-point group
``pubsub_lib.drivers`` as one class derived from :class:`Driver`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.masking import masked_fields, masked_repr


class Capabilities(msgspec.Struct, frozen=True):
    """The declared properties of a driver. The loader refuses a driver that lacks one that the configuration needs."""

    bind_based: bool
    """One publisher per host and address, to which other processes hand over, and to which subscribers connect by
    address; False: every process connects to a broker, or to nothing."""
    cross_process: bool
    """Publisher and subscriber may run in different processes of one host."""
    cross_host: bool
    """Publisher and subscriber may run on different hosts."""
    ordered: bool
    """Envelopes of one publisher on one topic never overtake each other."""
    carries_envelopes: bool = True
    """False: ``send_event`` sends no links, because subscribers read the changelog themselves."""
    needs_store: bool = False
    """The subscriber must be given the store's URL, because it polls the store."""
    fan_out: bool = True
    """Every subscriber receives from every publisher, and may send it hello requests. False: a hop between processes.
    There the one subscriber of an address receives from many publishers, and there are no hello requests."""
    connections: bool = True
    """Publisher and subscriber have connections, which may be lost and made again. A shared medium (a folder, shared
    memory) counts as a broker: a half is connected while it can open the medium. False: there are no connections
    (subscribers read the database), and ``on_connected`` is never called."""
    keys: bool = False
    """With ``DriverSettings.keys``, connections are encrypted, a subscriber accepts only publishers whose public key it
    was given, and a publisher only clients that it was given, each with its topics."""


class DriverSettings(msgspec.Struct, frozen=True):
    """The settings that every driver receives. ``options`` are the driver's own, already checked and frozen."""

    limits: Limits = Limits()
    store_url: str = ""
    addresses: tuple[str, ...] = ()
    """Addresses of the publishers. A subscriber registers them itself in ``initialize``."""
    bind_address: str = ""
    keys: bool = False
    """Whether connections need keys (``Capabilities.keys``)."""
    client_key_file: str = ""
    """The file with the key pair of a subscriber; see :mod:`pubsub_lib.curve_keys`."""
    options: Mapping[str, object] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        """Without passwords: logs and tracebacks show it."""
        return masked_repr(self.__struct_fields__, self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich."""
        return masked_fields(self.__struct_fields__, self)


class Client(msgspec.Struct, frozen=True):
    """A program that may connect to publishers: its name, its public key, and the topics that it may receive."""

    name: str
    public_key: str
    topics: frozenset[str] = frozenset()
    """With ``ALL`` among them: every topic, and a subscription to all topics."""


OnEnvelope = Callable[[Envelope], None]
OnHelloRequest = Callable[[HelloRequest], None]
OnConnected = Callable[[], None]


_Method = TypeVar("_Method", bound=Callable[..., object])


def of_drivers_with(capability: str) -> Callable[[_Method], _Method]:
    """Mark a method that a driver must define when it declares this capability, and need not define otherwise."""

    def mark(method: _Method) -> _Method:
        method.capability = capability  # type: ignore[attr-defined]
        return method

    return mark


class Publisher(ABC):
    """The sending half. All methods may be called from any thread after ``initialize``, one at a time per caller;
    the driver must lock where its transport needs it."""

    @abstractmethod
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Bind or connect. Must be called once, before anything else, in the process that sends. When it returns, a
        hello request of a connected subscriber must arrive: a driver that opens its channel for requests on a thread
        waits for that here.

        ``on_hello_request`` is called on a thread of the driver for every hello request of a subscriber. It is quick,
        and must not be called while a lock is held that ``send_event`` needs. Its exceptions must be caught and
        counted.

        ``on_connected`` is called in the same way, each time that a subscriber (or the broker) connects for the first
        time or again, as soon as an envelope that is sent now can reach it: after its subscriptions arrived, if the
        driver sees them. Several connections at nearly the same time may cause one call, and one connection may cause
        several calls. A driver without ``Capabilities.connections`` and a hop (``fan_out=False``) never call it. The
        driver must reconnect by itself as long as it is open; the caller does nothing for it.
        Raises TransportError when the address is unavailable. The error names the address and what to do.
        """

    @abstractmethod
    def send_event(self, envelope: Envelope) -> None:
        """Send one envelope to every subscriber of ``envelope.topic`` and to every subscriber of all topics. Send a
        hello reply (``envelope.hello.nonce``) only to the subscriber that requested it. Send any other envelope whose
        topic is ``ALL`` (a broadcast hello) to every subscriber, regardless of its topics.

        Must not block longer than 1 s, also while another process holds a lock or leaves a buffer full, and must never
        lose an envelope silently *before* handing it to the transport: raises TransportError when the publisher is not
        initialized or closed, or when the transport refuses the envelope, and FrameError("oversized") when it exceeds
        ``limits.max_frame_bytes``. Loss after that point is allowed, and must be counted in ``counters`` if the driver
        notices it. Must raise TransportError in a process other than the one that initialized the publisher (after a
        fork).
        """

    full_wait: float = 0.5
    """Seconds that ``send_event`` waits for room in a full buffer; 0.0: it raises at once."""

    def send_event_by(self, envelope: Envelope, deadline: float) -> None:
        """As ``send_event``, but wait for room only until the deadline (by ``time.monotonic``), and no longer than
        ``full_wait``. A worker calls this method, so that one commit has one wait for all its envelopes and for the
        other threads of its process. A driver without it waits for each envelope. Raises as ``send_event``.
        """
        self.send_event(envelope)

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """Counts since ``initialize``: at least ``sent`` (envelopes) and, once a callback raised, ``callback_errors``.
        Any thread, does not block.
        """

    max_sending: ClassVar[float] = 2.0
    """Seconds of ``sending_for`` above which a service is not ready. More for a driver whose steps wait for a server
    that answers slowly when it is busy."""

    def sending_for(self, now: float) -> float:
        """Seconds since the driver's sending thread began its step, or last sent or received in it, by
        ``time.monotonic``; 0.0 while it waits for messages, and for a driver without one. So a long step that goes on
        is no hang. Any thread, does not block.
        """
        return 0.0

    def bound_address(self) -> str:
        """The address that was bound, after ``initialize``, with the port that the system chose for an address with the
        port 0. "" by a driver without such addresses: a service then refuses them. Any thread, does not block.
        """
        return ""

    @of_drivers_with("keys")
    def public_key(self) -> str:
        """The public key of this publisher, a new one for each publisher object; "" without ``DriverSettings.keys``.
        Any thread, also before ``initialize``. The secret key must stay in memory.
        """
        return ""

    @of_drivers_with("keys")  # noqa: B027 - defined where the capability is declared
    def admit(self, clients: Collection[Client]) -> None:
        """Replace the clients that may connect and receive; before the first call there are none. Any thread, does not
        block.

        A client must receive nothing of topics that it was not granted: no envelope, and no topic's name, head or
        sequence in a hello. A connection of a client that lost its key or a topic must end within 2 s; the others may
        have to connect again. Without ``DriverSettings.keys`` nothing happens.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything within 2 s. Must be idempotent and safe from any thread."""


class Subscriber(ABC):
    """The receiving half. All methods may be called from any thread, also before ``daemonize`` and while running."""

    @abstractmethod
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """Prepare to receive. ``on_envelope`` is called on the receiving thread, one call at a time, per envelope.

        ``on_connected`` is called on a thread of the driver, after ``daemonize``, each time that a connection to a
        publisher (or the broker) is made for the first time or again. The call must come after all registered topics
        were subscribed to on the connection: a ``request_hello`` that follows must be answered, and envelopes that are
        published after that answer must arrive. The callback is quick and does not block; its exceptions must be caught
        and counted as ``callback_errors``. Several connections at nearly the same time may cause one call, and one
        connection may cause several calls. A driver without ``Capabilities.connections`` and a hop (``fan_out=False``)
        never call it. The driver must reconnect and subscribe again by itself as long as it is open; the caller does
        nothing for it.

        Invalid input (truncated, oversized, foreign, other major version) must be counted in ``counters`` by its reason
        and dropped. It must not raise and must not end the thread. Exceptions of ``on_envelope`` must be caught and
        counted as ``callback_errors``, and must not end the thread either.
        """

    @abstractmethod
    def register_topic(self, topic: str) -> None:
        """Also receive this topic; ``ALL`` for every topic. Must be exact: ``tenant-1`` never receives ``tenant-10``.
        Takes effect within a bounded time; envelopes published before that need not arrive. Idempotent."""

    @abstractmethod
    def unregister_topic(self, topic: str) -> None:
        """Stop receiving this topic; an envelope in transit may still arrive once. Idempotent."""

    @of_drivers_with("bind_based")  # noqa: B027 - defined where the capability is declared
    def register_listen_address(self, address: str) -> None:
        """Also receive from the publisher at this address. Idempotent. Without the capability nothing happens."""

    @of_drivers_with("bind_based")  # noqa: B027
    def unregister_listen_address(self, address: str) -> None:
        """Stop receiving from the publisher at this address. Idempotent. Without the capability nothing happens. A
        ``request_hello`` that follows must not reach it by this address: a reply shows who sends at the other ones."""

    @of_drivers_with("keys")  # noqa: B027
    def pin_key(self, address: str, public_key: str) -> None:
        """The publisher at this address has this public key. With ``DriverSettings.keys`` a subscriber must connect
        only to addresses with a key, and receive from no other publisher; a new key replaces the connection. Otherwise
        nothing happens. Idempotent; any thread, before or after ``register_listen_address``."""

    def know_publishers(self, uuids: Collection[str]) -> None:  # noqa: B027 - most drivers do nothing
        """A reading of the directory showed live leases of these publishers, and of no others. From the first call on,
        no message of another one may change how the subscriber receives. Any thread, does not block."""

    @of_drivers_with("fan_out")  # noqa: B027
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """Send a hello request about these topics to every publisher; a publisher refuses one with more than 200. The
        replies must reach only this subscriber, as envelopes whose ``hello.nonce`` is this nonce. Must not block; a
        publisher that cannot reply sends nothing. Without the capability nothing happens."""

    @abstractmethod
    def daemonize(self) -> None:
        """Start the receiving thread (a daemon thread) and return. Must be called once, after ``initialize``, and must
        not need a connection: while no publisher (or broker) is available the driver retries in the background.
        After a fork the child's copy is closed: it raises TransportError and must not disturb the parent's."""

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """Counts since ``initialize``: at least ``received``, ``callback_errors`` and one count per reason of a drop
        (``truncated``, ``oversized``, ``version``, ``foreign``, ``overflow``). Any thread, does not block."""

    @abstractmethod
    def close(self) -> None:
        """Stop the receiving thread and release everything within 2 s. ``on_envelope`` must not be called after this
        method returned. Must be idempotent, and safe from any thread, the receiving thread included."""


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
