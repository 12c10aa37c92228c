"""The role of each service in the directory."""

from alembic import op
from sqlalchemy import Column, inspect

from pubsub_lib.store.types import Name

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """From 0004. MariaDB commits every DDL statement by itself: an interrupted run is simply run again."""
    if "role" not in {column["name"] for column in inspect(op.get_bind()).get_columns("pubsub_services")}:
        op.add_column("pubsub_services", Column("role", Name(16), nullable=False, server_default="origin"))
