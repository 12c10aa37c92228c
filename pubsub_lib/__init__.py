"""Local copies of a central database that know that they are right.

Writers use :class:`Store`, followers :class:`Replica`, or :class:`AsyncReplica` with asyncio; a program that publishes
what it commits adds :func:`open_publisher`: a :class:`Worker` where its host runs the publisher service, a
:class:`Publisher` otherwise.
``docs/architecture.md`` shows the data path.
"""

from pubsub_lib.core.dispatch import HandlerPolicy
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import DEFAULT_TOPIC, Point
from pubsub_lib.core.objects import Object
from pubsub_lib.core.table import Table
from pubsub_lib.core.timing import Timing
from pubsub_lib.journal import JournalSettings
from pubsub_lib.publisher.opening import open_publisher
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.replica.aio import AsyncHandle, AsyncReplica
from pubsub_lib.replica.handlers import Handle
from pubsub_lib.replica.replica import Replica
from pubsub_lib.replica.status import Status
from pubsub_lib.settings import Settings, StoreSettings
from pubsub_lib.store import Commit, Store, Stored, Transaction

__all__ = [
    "DEFAULT_TOPIC",
    "AsyncHandle",
    "AsyncReplica",
    "Commit",
    "Event",
    "Handle",
    "HandlerPolicy",
    "HistoryChange",
    "JournalSettings",
    "Limits",
    "Object",
    "Point",
    "Publisher",
    "Replica",
    "Settings",
    "Status",
    "Store",
    "StoreSettings",
    "Stored",
    "Table",
    "Timing",
    "Transaction",
    "Worker",
    "open_publisher",
]
