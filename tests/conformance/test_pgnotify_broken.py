"""The suite finds faults of both halves' connections: each broken variant fails the check for its fault.

Faults of polling are in ``test_polling_broken.py``.
"""

from collections.abc import Iterator

import pytest
from _servers import PrivateServer

from pubsub_pgnotify.session import Session
from pubsub_pgnotify.subscriber import NotifiedSubscriber
from tests.conformance.broken import HangsInClose
from tests.conformance.pgnotify_rig import database, rig_of
from tests.conformance.trial import AGAIN, ALONE, CONNECTED, Table, checks, fails, of_any, passes

pytestmark = pytest.mark.postgresql


class ConnectsOnce(Session):
    def connect(self, *statements: str) -> bool:
        return not self.counts["connections"] and super().connect(*statements)


class NoticesNoLoss(Session):
    def _lost(self, error: Exception) -> None:
        pass


class EndsAtALoss(Session):
    def _lost(self, error: Exception) -> None:
        raise error


class ListensToAnotherChannel(Session):
    hasty = True

    def connect(self, *statements: str) -> bool:
        return super().connect(*[each.replace("pubsub_", "pubsub") for each in statements])


class IsNotWoken(NotifiedSubscriber):
    def _notify(self) -> None:
        if self._life.closed:
            super()._notify()


BROKEN: Table = {
    **of_any(
        "reports no connection",
        "reports the first connection only",
        "publisher reports the first connection only",
        "ends at a callback's error",
    ),
    "connects once": (ConnectsOnce, CONNECTED),
    "notices no loss": (NoticesNoLoss, CONNECTED),
    "ends at a loss": (EndsAtALoss, AGAIN),
    "listens to another channel": (ListensToAnotherChannel, "test_send_event_must_reach_every_subscriber_of_the_topic"),
    "is not woken by a hello request": (IsNotWoken, ALONE),
    "hangs in close": (HangsInClose, "test_close_must_be_quick_while_cut_off"),
}


@pytest.fixture(scope="module")
def url(postgres_server: PrivateServer) -> Iterator[str]:
    yield from database(postgres_server)


@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_driver_that_listens_fails(fault: str, url: str) -> None:
    with rig_of(url) as rig:
        fails(BROKEN, fault, rig)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("check", checks(BROKEN))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str, url: str) -> None:
    with rig_of(url) as rig:
        passes(rig, check)
