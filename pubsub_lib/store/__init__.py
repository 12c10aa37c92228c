"""The store: objects, heads and changelog in SQLite, PostgreSQL, MariaDB or MySQL (docs/protocol.md, "The store")."""

from pubsub_lib.core.model import DEFAULT_TOPIC
from pubsub_lib.store.administration import migrate
from pubsub_lib.store.before_write import BeforeWrite, ProposedWrite
from pubsub_lib.store.commit_callbacks import OnCommit
from pubsub_lib.store.directory import Directory, Service
from pubsub_lib.store.links import Commit
from pubsub_lib.store.settings import StoreSettings
from pubsub_lib.store.store import Store
from pubsub_lib.store.transaction import Transaction
from pubsub_lib.store.verbs import Stored

__all__ = [
    "DEFAULT_TOPIC",
    "BeforeWrite",
    "Commit",
    "Directory",
    "OnCommit",
    "ProposedWrite",
    "Service",
    "Store",
    "StoreSettings",
    "Stored",
    "Transaction",
    "migrate",
]
