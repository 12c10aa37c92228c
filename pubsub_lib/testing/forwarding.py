"""A subscriber that forwards every call to another one: a base class for subscribers that change a few methods."""

from collections.abc import Collection, Mapping

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber


class ForwardingSubscriber(Subscriber):
    """Forwards every method to the wrapped subscriber."""

    def __init__(self, inner: Subscriber) -> None:
        self._inner = inner

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """As the wrapped subscriber's."""
        self._inner.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        """As the wrapped subscriber's."""
        self._inner.register_topic(topic)

    def unregister_topic(self, topic: str) -> None:
        """As the wrapped subscriber's."""
        self._inner.unregister_topic(topic)

    def register_listen_address(self, address: str) -> None:
        """As the wrapped subscriber's."""
        self._inner.register_listen_address(address)

    def unregister_listen_address(self, address: str) -> None:
        """As the wrapped subscriber's."""
        self._inner.unregister_listen_address(address)

    def pin_key(self, address: str, public_key: str) -> None:
        """As the wrapped subscriber's."""
        self._inner.pin_key(address, public_key)

    def know_publishers(self, uuids: Collection[str]) -> None:
        """As the wrapped subscriber's."""
        self._inner.know_publishers(uuids)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """As the wrapped subscriber's."""
        self._inner.request_hello(nonce, topics)

    def daemonize(self) -> None:
        """As the wrapped subscriber's."""
        self._inner.daemonize()

    def counters(self) -> Mapping[str, int]:
        """As the wrapped subscriber's."""
        return self._inner.counters()

    def close(self) -> None:
        """As the wrapped subscriber's."""
        self._inner.close()
