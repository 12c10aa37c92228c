"""The ``db_polling_pubsub_driver``: subscribers poll the changelog in the database; publishers send nothing."""

from pubsub_sql.driver import PollingDriver

__all__ = ["PollingDriver"]
