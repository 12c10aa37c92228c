"""Local replicas of a central database, which detect missing changes and repair themselves.

Writers use :class:`Store`. Readers use :class:`Replica`, or :class:`AsyncReplica` with asyncio. A program that
publishes its commits adds :func:`open_publisher`: it returns a :class:`Worker` if the host runs the publisher service,
else a :class:`Publisher`. ``docs/architecture.md`` shows the data path.

Each name is imported at its first use (PEP 562): a program that needs only the errors does not load SQLAlchemy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pubsub_lib.version import __version__ as __version__

if TYPE_CHECKING:
    from pubsub_lib.config.program import StoreSettings
    from pubsub_lib.core.events import Event
    from pubsub_lib.core.handler_queue import HandlerPolicy
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
    from pubsub_lib.replica.asyncio_replica import AsyncHandle, AsyncReplica
    from pubsub_lib.replica.handlers import Handle
    from pubsub_lib.replica.replica import Replica
    from pubsub_lib.replica.status import Status
    from pubsub_lib.settings import Settings
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

_MODULES: Final = {
    "DEFAULT_TOPIC": "core.model",
    "AsyncHandle": "replica.asyncio_replica",
    "AsyncReplica": "replica.asyncio_replica",
    "Commit": "store",
    "Event": "core.events",
    "Handle": "replica.handlers",
    "HandlerPolicy": "core.handler_queue",
    "HistoryChange": "core.history_change",
    "JournalSettings": "journal",
    "Limits": "core.limits",
    "Object": "core.objects",
    "Point": "core.model",
    "Publisher": "publisher.publisher",
    "Replica": "replica.replica",
    "Settings": "settings",
    "Status": "replica.status",
    "Store": "store",
    "StoreSettings": "config.program",
    "Stored": "store",
    "Table": "core.table",
    "Timing": "core.timing",
    "Transaction": "store",
    "Worker": "publisher.worker",
    "open_publisher": "publisher.opening",
}
"""The module of each public name, below this package."""


if not TYPE_CHECKING:  # with this function a type checker would accept every name

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value  # the next use does not call this function
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
