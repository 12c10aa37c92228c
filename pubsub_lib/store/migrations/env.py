"""Run by Alembic. The connection comes from :mod:`pubsub_lib.store.migration`, which also holds the lock."""

from alembic import context

from pubsub_lib.store.schema import VERSION_TABLE, metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
