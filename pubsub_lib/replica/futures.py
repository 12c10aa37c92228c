"""Work on threads that coroutines wait for."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def shielded(work: Future[T]) -> "asyncio.Future[T]":
    """An awaitable for work that continues when its waiter is cancelled. Call it in the event loop; does not block.

    An exception of the work after a cancellation is not reported as "never retrieved".
    """
    inner = asyncio.wrap_future(work)
    # asyncio.shield retrieves the exception only while a coroutine waits.
    inner.add_done_callback(lambda done: done.cancelled() or done.exception())
    return asyncio.shield(inner)


def submitted(pools: Sequence[ThreadPoolExecutor], fn: Callable[[], T]) -> Future[T]:
    """Call ``fn`` on a thread of the first pool that has one, or for which the system starts one. Raises RuntimeError
    when there is none.
    """
    first, *others = pools
    try:
        return first.submit(fn)
    except RuntimeError:
        if not others:
            raise
        return submitted(others, fn)
