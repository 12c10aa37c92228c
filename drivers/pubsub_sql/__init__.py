"""The ``db_polling_pubsub_driver``: subscribers follow the changelog in the database; publishers have nothing to do."""

from pubsub_sql.driver import PollingDriver

__all__ = ["PollingDriver"]
