"""Objects, heads, changelog and counter.

``if_not_exists`` everywhere: MariaDB commits every DDL statement by itself, so a creation that was interrupted is
simply run again.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, SmallInteger, inspect, text

from pubsub_lib.store.types import Name, blob

revision = "0001"
down_revision = None


def upgrade() -> None:
    """From an empty database."""
    op.create_table(
        "pubsub_store",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("position", BigInteger, nullable=False),
        Column("nonce", BigInteger, nullable=False),
        Column("prev_nonce", BigInteger, nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "pubsub_topics",
        Column("topic", Name(255), nullable=False, primary_key=True),
        Column("position", BigInteger, nullable=False),
        Column("nonce", BigInteger, nullable=False),
        Column("count", BigInteger, nullable=False),
        Column("digest_lo", BigInteger, nullable=False),
        Column("digest_hi", BigInteger, nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "pubsub_objects",
        Column("table_name", Name(255), nullable=False, primary_key=True),
        Column("object_key", Name(512), nullable=False, primary_key=True),
        Column("topic", Name(255), nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("value", blob(), nullable=False),
        Column("fp_lo", BigInteger, nullable=False),
        Column("fp_hi", BigInteger, nullable=False),
        Column("bucket", SmallInteger, nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    op.create_table(
        "pubsub_links",
        Column("position", BigInteger, nullable=False, primary_key=True, autoincrement=False),
        Column("topic", Name(255), nullable=False, primary_key=True),
        Column("nonce", BigInteger, nullable=False),
        Column("prev_position", BigInteger, nullable=False),
        Column("prev_nonce", BigInteger, nullable=False),
        Column("count", BigInteger, nullable=False),
        Column("digest_lo", BigInteger, nullable=False),
        Column("digest_hi", BigInteger, nullable=False),
        Column("tx_prev_position", BigInteger, nullable=False),
        Column("tx_prev_nonce", BigInteger, nullable=False),
        Column("tx_links", Integer, nullable=False),
        Column("origin", Name(255), nullable=False),
        Column("written_at", Double, nullable=False),
        Column("stored_at", BigInteger, nullable=False),
        Column("changes", blob(), nullable=False),
        mysql_engine="InnoDB",
        if_not_exists=True,
    )
    _create_index("pubsub_objects_page", "pubsub_objects", ["topic", "bucket", "table_name", "object_key"])
    _create_index("pubsub_links_topic", "pubsub_links", ["topic", "position"])
    _create_index("pubsub_links_nonce", "pubsub_links", ["nonce"])
    if op.get_bind().execute(text("SELECT count(*) FROM pubsub_store")).scalar_one() == 0:
        op.execute("INSERT INTO pubsub_store (id, position, nonce, prev_nonce) VALUES (1, 0, 0, 0)")


def _create_index(name: str, table: str, columns: list[str]) -> None:
    # MySQL knows no CREATE INDEX IF NOT EXISTS.
    if name not in {index["name"] for index in inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns)
