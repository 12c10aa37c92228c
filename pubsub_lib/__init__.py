"""Local copies of a central database that know that they are right.

Writers use :class:`Store`, followers :class:`Replica`, or :class:`AsyncReplica` with asyncio; a program that publishes
what it commits adds :func:`open_publisher`: a :class:`Worker` where its host runs the publisher service, a
:class:`Publisher` otherwise.
``docs/architecture.md`` shows the data path.
"""

from pubsub_lib.core.events import Event
from pubsub_lib.core.model import DEFAULT_TOPIC
from pubsub_lib.core.timing import Timing
from pubsub_lib.runtime.aio import AsyncReplica
from pubsub_lib.runtime.opening import open_publisher
from pubsub_lib.runtime.publisher import Publisher
from pubsub_lib.runtime.replica import Replica
from pubsub_lib.runtime.worker import Worker
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store

__all__ = [
    "DEFAULT_TOPIC",
    "AsyncReplica",
    "Event",
    "Publisher",
    "Replica",
    "Settings",
    "Store",
    "Timing",
    "Worker",
    "open_publisher",
]
