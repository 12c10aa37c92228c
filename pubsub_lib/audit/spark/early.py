"""Starts Spark in a thread of its own while the journals are read: both take some seconds."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = Callable[[], "tuple[SparkSession, bool]"]
"""Starts a session: see :func:`pubsub_lib.audit.spark.session.session`."""


class EarlyStart:
    """A session that is being started, if any. Only one thread may use it."""

    def __init__(self, starting: "Future[tuple[SparkSession, bool]] | None") -> None:
        self._starting = starting

    def take(self, start: Start) -> "tuple[SparkSession, bool]":
        """The session that is being started, the first time; later, and without one, the result of ``start``.

        Blocks until the session has started. Raises the errors of its start.
        """
        starting, self._starting = self._starting, None
        return start() if starting is None else starting.result()

    def drop(self) -> None:
        """Stop the session unless it was taken. Blocks until it has started."""
        starting, self._starting = self._starting, None
        if starting is not None and starting.exception() is None:
            spark, ours = starting.result()
            if ours:
                spark.stop()


@contextmanager
def early(start: Start | None) -> Iterator[EarlyStart]:
    """Call ``start`` in a thread. A session that is not taken inside the block is stopped after it."""
    if start is None or _running():
        yield EarlyStart(None)
        return
    with ThreadPoolExecutor(1, "start-spark") as threads:
        begun = EarlyStart(threads.submit(start))
        try:
            yield begun
        finally:
            begun.drop()


def _running() -> bool:
    """Whether this process has a session, which another thread would not see."""
    try:
        from pyspark import SparkContext
    except ImportError:
        return False  # the start reports it
    return SparkContext._active_spark_context is not None
