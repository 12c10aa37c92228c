"""The suite finds faults of both halves' connections: each broken variant fails the check for its fault.

Faults of polling are in ``test_polling_broken.py``.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from _servers import PrivateServer

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, OnHelloRequest, Publisher, Subscriber
from pubsub_lib.errors import TransportError
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_pgnotify.driver import PgNotifyDriver
from pubsub_pgnotify.publisher import NotifyingPublisher
from pubsub_pgnotify.session import Session
from pubsub_pgnotify.subscriber import NotifiedSubscriber
from tests.conformance.broken import ending_at
from tests.conformance.pgnotify_rig import database, rig_of

pytestmark = pytest.mark.postgresql


class ConnectsOnce(Session):
    def connect(self, statement: str) -> bool:
        return not self.counts["connections"] and super().connect(statement)


class NoticesNoLoss(Session):
    def _lost(self, error: Exception) -> None:
        pass


class EndsAtALoss(Session):
    def _lost(self, error: Exception) -> None:
        raise error


class ListensToAnotherChannel(Session):
    def connect(self, statement: str) -> bool:
        return super().connect(statement.replace("pubsub_", "pubsub"))


class ReportsNoConnection(NotifiedSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(on_envelope, lambda: None)


class ReportsOneConnection(NotifiedSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(on_envelope, lambda: on_connected() if self._session.counts["connections"] < 2 else None)


class ReportsNoLaterConnection(NotifyingPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        super().initialize(
            on_hello_request, lambda: on_connected() if self._session.counts["connections"] < 2 else None
        )


class EndsAtACallbackError(NotifiedSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(ending_at(BaseException, self._life, on_envelope), on_connected)


class IsNotWoken(NotifiedSubscriber):
    def _notify(self) -> None:
        pass


class HangsInClose(NotifiedSubscriber):
    def close(self) -> None:
        time.sleep(3)
        super().close()


RECONNECTS = "test_both_halves_must_connect_again_by_themselves"
CONNECTED = "test_on_connected_must_be_called_at_each_connection"
BROKEN: dict[str, tuple[type[Any], str]] = {
    "connects once": (ConnectsOnce, CONNECTED),
    "notices no loss": (NoticesNoLoss, CONNECTED),
    "ends at a loss": (EndsAtALoss, RECONNECTS),
    "listens to another channel": (ListensToAnotherChannel, "test_send_event_must_reach_every_subscriber_of_the_topic"),
    "reports no connection": (ReportsNoConnection, CONNECTED),
    "reports one connection": (ReportsOneConnection, CONNECTED),
    "reports no later connection of the publisher": (ReportsNoLaterConnection, CONNECTED),
    "ends at a callback error": (
        EndsAtACallbackError,
        "test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread",
    ),
    "is not woken by a hello request": (IsNotWoken, "test_request_hello_must_be_answered_to_the_asker_alone"),
    "hangs in close": (HangsInClose, "test_close_must_be_quick_while_cut_off"),
}


def driver_of(broken: type[Any]) -> type[PgNotifyDriver]:
    """The driver with one part replaced."""

    def spoilt(half: Any) -> Any:
        if issubclass(broken, Session):
            half._session.__class__ = broken
        elif issubclass(broken, type(half)):
            half.__class__ = broken
        return half

    class Broken(PgNotifyDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            made: Publisher = spoilt(super().publisher(settings))
            return made

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            made: Subscriber = spoilt(super().subscriber(settings))
            return made

    return Broken


@pytest.fixture(scope="module")
def url(postgres_server: PrivateServer) -> Iterator[str]:
    yield from database(postgres_server)


@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_driver_that_listens_fails(fault: str, url: str) -> None:
    broken, check = BROKEN[fault]
    with (
        rig_of(driver_of(broken), url, patience=3.0) as rig,
        pytest.raises((AssertionError, TransportError, pytest.fail.Exception)),
    ):
        getattr(DriverConformance(), check)(rig)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("check", sorted({check for _, check in BROKEN.values()}))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str, url: str) -> None:
    with rig_of(PgNotifyDriver, url) as rig:
        getattr(DriverConformance(), check)(rig)
