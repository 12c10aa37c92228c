"""The tables of the current revision. The migrations build the same tables, step by step (a test compares them).

Nothing is built from these tables, so they have no options of a dialect: for one, SQLAlchemy imports the whole dialect.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, SmallInteger, Table

from pubsub_lib.core.model import MAX_KEY_BYTES, MAX_NAME_BYTES
from pubsub_lib.store.types import Name, blob

REVISION: Final = "0005"
"""The newest Alembic revision."""
VERSION_TABLE: Final = "pubsub_version"
"""Where Alembic keeps the revision of a database."""

metadata = MetaData()


def _table(name: str, *parts: Column[int] | Column[str] | Column[bytes] | Column[float] | Index) -> Table:
    return Table(name, metadata, *parts)


def _big(name: str, *, primary_key: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=False, primary_key=primary_key, autoincrement=False)


def _name(name: str, size: int = MAX_NAME_BYTES, *, primary_key: bool = False) -> Column[str]:
    return Column(name, Name(size), nullable=False, primary_key=primary_key)


store = _table(
    "pubsub_store",
    Column("id", Integer, primary_key=True, autoincrement=False),
    _big("position"),
    _big("nonce"),
    _big("prev_nonce"),
    Column("store_id", Name(32), nullable=False, server_default=""),
)
"""One row (id 1): the counter. The store's point, and the previous transaction's nonce, because UPDATE … RETURNING
returns only new values. ``store_id``: the store's random id, as 32 hex digits (rule S12)."""

topics = _table(
    "pubsub_topics",
    _name("topic", primary_key=True),
    _big("position"),
    _big("nonce"),
    _big("count"),
    _big("digest_lo"),
    _big("digest_hi"),
)
"""The heads. Never removed."""

objects = _table(
    "pubsub_objects",
    _name("table_name", primary_key=True),
    _name("object_key", MAX_KEY_BYTES, primary_key=True),
    _name("topic"),
    _big("version"),
    Column("value", blob(), nullable=False),
    _big("fp_lo"),
    _big("fp_hi"),
    Column("bucket", SmallInteger, nullable=False),
    # One index for the pages of a topic and for its bucket digests.
    Index("pubsub_objects_page", "topic", "bucket", "table_name", "object_key"),
)

links = _table(
    "pubsub_links",
    _big("position", primary_key=True),
    _name("topic", primary_key=True),
    _big("nonce"),
    _big("prev_position"),
    _big("prev_nonce"),
    _big("count"),
    _big("digest_lo"),
    _big("digest_hi"),
    _big("tx_prev_position"),
    _big("tx_prev_nonce"),
    Column("tx_links", Integer, nullable=False),
    _name("origin"),
    Column("written_at", Double, nullable=False),
    _big("stored_at"),
    Column("changes", blob(), nullable=False),
    Index("pubsub_links_topic", "topic", "position"),
    Index("pubsub_links_nonce", "nonce"),
)
"""The changelog. ``stored_at`` is by the database's clock (microseconds), for trimming by age."""

counters = _table("pubsub_counters", _name("name", primary_key=True), _big("value"))

services = _table(
    "pubsub_services",
    _name("uuid", primary_key=True),
    _name("service"),
    _name("address", 1024),
    _big("lease_until"),
    Column("store_id", Name(32), nullable=False, server_default=""),
    Column("public_key", Name(40), nullable=False, server_default=""),
    Column("role", Name(16), nullable=False, server_default="origin"),
)
"""``store_id``: the store's id when the service registered. A copied database holds entries of the original.
``public_key``: the key that replicas accept at the address; "" for a publisher without keys. ``role``: origin
or relay."""

clients = _table("pubsub_clients", _name("name", primary_key=True), _name("public_key", 40))
"""The programs that may connect to publishers with keys."""

grants = _table("pubsub_grants", _name("name", primary_key=True), _name("topic", primary_key=True))
"""The topics that a client may receive, "" for every topic."""

leases = _table("pubsub_leases", _name("name", primary_key=True), _name("holder"), _big("lease_until"))
