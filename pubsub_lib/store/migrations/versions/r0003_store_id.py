"""The store's random id, also in the directory's entries.

A database of an older version gets one here, and so does a new one, because its creation runs all migrations.
"""

import uuid

from alembic import op
from sqlalchemy import Column, inspect, text

from pubsub_lib.store.types import Name

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """From 0002. MariaDB commits every DDL statement by itself: an interrupted run is simply run again."""
    for table in ("pubsub_store", "pubsub_services"):
        if "store_id" not in {column["name"] for column in inspect(op.get_bind()).get_columns(table)}:
            op.add_column(table, Column("store_id", Name(32), nullable=False, server_default=""))
    given = text("UPDATE pubsub_store SET store_id = :new WHERE store_id = ''")
    op.get_bind().execute(given, {"new": uuid.uuid4().hex})
