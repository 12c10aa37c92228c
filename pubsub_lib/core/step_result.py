"""The result of one step of a replica's state, as data."""

from collections.abc import Sequence

import msgspec

from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.events import Event
from pubsub_lib.core.foreign_stores import ForeignPublisher
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.core.topic_objects import Rot


class StepResult(msgspec.Struct, frozen=True):
    """The result of a step: events for the handlers in chain order (perhaps none without handlers), and the operations
    that the caller must do now. ``by_sync``: number of events at the begin that come from a full sync or an
    unsubscribe, which do not know the order of changes; the others come from links.
    """

    events: Sequence[Event] = ()
    hello_requests: Sequence[RequestHello] = ()
    sync: StartSync | None = None
    rotted: Sequence[Rot] = ()
    """Faults that a recount found; their repair was started."""
    by_sync: int = 0
    history: HistoryChange | None = None
    """The store's history changed: handlers must be notified before ``events``, in which versions may go back."""
    read_directory: bool = False
    """The directory is to be read now: ``ReplicaState.directory_read``."""
    foreign: ForeignPublisher | None = None
    """The first message of a publisher of another store was dropped."""
    quarantined: Sequence[Publisher] = ()
    """Publishers whose messages are not used from now on, because of something else than an undone point."""
    then: "StepResult | None" = None
    """Events that follow these, with a notice of their own."""


NOTHING = StepResult()
