"""Named counters, and the directory: services and named leases."""

from alembic import op
from sqlalchemy import BigInteger, Column

from pubsub_lib.store.types import Name

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """From 0001."""
    op.create_table(
        "pubsub_counters",
        Column("name", Name(255), nullable=False, primary_key=True),
        Column("value", BigInteger, nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "pubsub_services",
        Column("uuid", Name(255), nullable=False, primary_key=True),
        Column("service", Name(255), nullable=False),
        Column("address", Name(1024), nullable=False),
        Column("lease_until", BigInteger, nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "pubsub_leases",
        Column("name", Name(255), nullable=False, primary_key=True),
        Column("holder", Name(255), nullable=False),
        Column("lease_until", BigInteger, nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
