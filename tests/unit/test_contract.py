"""A driver of another version of the contract is refused by name, wherever it is used."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pubsub_lib import Publisher, Replica, Settings, Store, Worker, contract, loader
from pubsub_lib.api import Driver, DriverSettings
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.api import Subscriber as DriverSubscriber
from pubsub_lib.errors import DriverError
from pubsub_lib.service.service import drivers
from pubsub_lib.testing.faults import faulty
from pubsub_memory import MemoryBus, MemoryDriver
from pubsub_memory.publisher import MemoryPublisher
from pubsub_memory.subscriber import MemorySubscriber

MEMORY = DriverSettings(options={})


class OldSubscriber(MemorySubscriber):
    """A subscriber from before ``on_connected`` existed."""

    def initialize(self, on_envelope: Any) -> None:  # type: ignore[override]
        """One callback."""


class OldPublisher(MemoryPublisher):
    """A publisher from before ``on_connected`` existed."""

    def initialize(self, on_hello_request: Any) -> None:  # type: ignore[override]
        """One callback."""


class Old(Driver):
    """A driver of the first version of the contract."""

    name = "old_driver"
    capabilities = MemoryDriver.capabilities

    @classmethod
    def publisher(cls, settings: DriverSettings) -> DriverPublisher:
        """Old."""
        return OldPublisher(MemoryBus(), settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> DriverSubscriber:
        """Old."""
        return OldSubscriber(MemoryBus(), settings.limits, 10)


SUBSCRIBER = (
    "the driver 'old_driver' (of the package 'tests') breaks the contract of this release: the method "
    "initialize of its subscriber takes (on_envelope) and is called with (on_envelope, on_connected); install a "
    "compatible release of the package, or correct the method (see docs/writing-a-driver.md)"
)
PUBLISHER = SUBSCRIBER.replace("subscriber", "publisher").replace("on_envelope", "on_hello_request")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a service; the old driver is loaded for every name."""
    monkeypatch.setattr(loader, "load", lambda name, needs=None: Old)
    monkeypatch.setattr(loader, "load_hop", lambda name: Old)
    return Settings(
        store_url=f"sqlite:///{tmp_path}/net.db",
        driver="old_driver",
        multiproc_driver="old_driver",
        service_name="api-1",
    )


def refused(do: Callable[[], object], words: str) -> None:
    with pytest.raises(DriverError) as caught:
        do()
    assert str(caught.value) == words


def test_replica_refuses_an_old_subscriber(settings: Settings) -> None:
    refused(lambda: Replica(settings), SUBSCRIBER)


def test_replica_refuses_an_old_subscriber_that_is_given(settings: Settings) -> None:
    refused(lambda: Replica(settings, subscriber=Old.subscriber(MEMORY)), SUBSCRIBER.replace(" 'old_driver'", ""))


def test_publisher_refuses_an_old_driver(settings: Settings) -> None:
    with Store(settings) as store:
        refused(lambda: Publisher(settings, store), PUBLISHER)
        refused(lambda: Publisher(settings, store, Old.publisher(MEMORY)), PUBLISHER.replace(" 'old_driver'", ""))


def test_worker_refuses_an_old_driver(settings: Settings) -> None:
    with Store(settings) as store:
        refused(lambda: Worker(settings, store), PUBLISHER)
        refused(lambda: Worker(settings, store, Old.publisher(MEMORY)), PUBLISHER.replace(" 'old_driver'", ""))


def test_service_refuses_an_old_driver_before_it_starts(settings: Settings) -> None:
    refused(lambda: drivers(settings), PUBLISHER)


def test_wrapped_driver_is_refused_by_its_own_name() -> None:
    refused(lambda: faulty(Old).subscriber(MEMORY), SUBSCRIBER)
    refused(lambda: faulty(Old).publisher(MEMORY), PUBLISHER)


def test_half_that_lacks_a_method_is_refused() -> None:
    class Unfinished(Old):
        """Its subscriber was written before ``unregister_topic``, and derives from the contract's class."""

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> DriverSubscriber:
            """Of an abstract class."""
            return type("Half", (DriverSubscriber,), {})()  # type: ignore[no-any-return]

    with pytest.raises(
        DriverError, match=r"^the driver 'old_driver' \(of the package '.*'\) cannot make its subscriber: "
    ):
        contract.subscriber(Unfinished, MEMORY)


@pytest.mark.parametrize("half", [None, object(), type("Half", (), {"initialize": lambda self, a, b: None})()])
def test_object_without_the_methods_is_refused(half: object) -> None:
    with pytest.raises(DriverError, match="has no method"):
        contract.check_subscriber(half)


def test_method_with_more_parameters_is_accepted() -> None:
    class Generous(OldSubscriber):
        """Accepts the arguments of any later release."""

        def initialize(self, *given: Any, **more: Any) -> None:
            """Anything."""

    contract.check_subscriber(Generous(MemoryBus(), MEMORY.limits, 10))


def test_signature_of_a_decorated_method_is_that_of_the_wrapper() -> None:
    def with_session(method: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(method)
        def wrapper(self: object, *given: Any) -> None:
            return method(self, "session", *given)

        return wrapper

    class Decorated(MemorySubscriber):
        """Its method gets one more argument from its decorator."""

        @with_session
        def register_topic(self, session: str, topic: str) -> None:
            """Of a topic."""

    contract.check_subscriber(Decorated(MemoryBus(), MEMORY.limits, 10))


def test_proxy_that_has_every_name_is_accepted() -> None:
    class Proxy:
        """An object with every attribute."""

        def __getattr__(self, name: str) -> Any:
            return Proxy()

        def __call__(self, *given: Any) -> None:
            """Anything."""

    contract.check_subscriber(Proxy())


def test_method_with_keyword_only_parameters_is_refused() -> None:
    class Keywords(OldSubscriber):
        """Takes its arguments by name."""

        def initialize(self, *, on_envelope: Any, on_connected: Any) -> None:  # type: ignore[override]
            """By name."""

    with pytest.raises(DriverError, match=r"takes \(\*, on_envelope, on_connected\) and is called with \(on_env"):
        contract.check_subscriber(Keywords(MemoryBus(), MEMORY.limits, 10))


@pytest.mark.parametrize("name", ["memory", "db_polling_pubsub_driver", "zmq_pubsub_driver"])
def test_shipped_drivers_keep_the_contract(name: str) -> None:
    driver = loader.load(name)
    given = DriverSettings(store_url="sqlite:///net.db", addresses=(), bind_address="tcp://127.0.0.1:8866")
    contract.publisher(driver, given).close()
    contract.subscriber(driver, given).close()


class Silent(DriverSubscriber):
    """Without the methods that go with a capability."""

    initialize = register_topic = unregister_topic = daemonize = counters = close = lambda self, *given: None  # type: ignore[assignment]


def test_a_subscriber_that_is_passed_in_must_send_hello_requests() -> None:
    """A replica needs them; of its driver, and so of the other capabilities, nothing is known."""
    with pytest.raises(DriverError, match=r"its subscriber .*has no method request_hello"):
        contract.check_subscriber(Silent())


def test_a_method_without_its_capability_must_still_take_the_arguments_of_the_call() -> None:
    class Wrong(MemorySubscriber):
        def register_listen_address(self, first: str, second: str) -> None:  # type: ignore[override]
            """One argument too many."""

    with pytest.raises(DriverError, match=r"the method register_listen_address .* takes"):
        contract.check_subscriber(Wrong(MemoryBus(), MEMORY.limits, 10))


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"bind_based": True}, "register_listen_address"),
        ({"bind_based": False}, "request_hello"),
        ({"bind_based": False, "fan_out": False}, ""),
    ],
)
def test_a_method_is_required_only_with_its_capability(changed: dict[str, bool], missing: str) -> None:
    class Toy(Driver):
        name = "toy"
        capabilities = msgspec.structs.replace(MemoryDriver.capabilities, **changed)

        @classmethod
        def publisher(cls, settings: DriverSettings) -> DriverPublisher:
            return MemoryDriver.publisher(settings)

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> DriverSubscriber:
            return Silent()

    if not missing:
        found = contract.subscriber(Toy, MEMORY)
        found.request_hello("n", ["t"])
        found.register_listen_address("tcp://10.0.0.1:1")
        return
    with pytest.raises(DriverError, match=f"its subscriber .*has no method {missing}"):
        contract.subscriber(Toy, MEMORY)
