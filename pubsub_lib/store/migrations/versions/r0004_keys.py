"""Public keys of publishers in the directory, and the clients with the topics that they may receive."""

from alembic import op
from sqlalchemy import Column, inspect

from pubsub_lib.store.types import Name

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """From 0003. MariaDB commits every DDL statement by itself: an interrupted run is simply run again."""
    if "public_key" not in {column["name"] for column in inspect(op.get_bind()).get_columns("pubsub_services")}:
        op.add_column("pubsub_services", Column("public_key", Name(40), nullable=False, server_default=""))
    op.create_table(
        "pubsub_clients",
        Column("name", Name(255), nullable=False, primary_key=True),
        Column("public_key", Name(40), nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "pubsub_grants",
        Column("name", Name(255), nullable=False, primary_key=True),
        Column("topic", Name(255), nullable=False, primary_key=True),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
