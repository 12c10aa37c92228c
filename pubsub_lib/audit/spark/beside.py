"""Runs a part of an audit of little data in a thread of its own.

Such an audit mostly plans, which uses one processor for each thread. With much data the jobs use all processors.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from pubsub_lib.audit.spark.settled import single

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


@contextmanager
def beside(spark: "SparkSession", work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """``work`` runs in a thread while the block runs. The given function returns its result, or raises its error.

    With several partitions ``work`` runs when its result is requested. Blocks at the end until ``work`` is done.
    """
    if not single(spark):
        yield work
        return
    with ThreadPoolExecutor(1, "audit-part") as threads:
        yield threads.submit(work).result
