"""Work on threads that coroutines wait for."""

import asyncio
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def shielded(work: Future[T]) -> "asyncio.Future[T]":
    """To await work that goes on when its waiter is cancelled. Call it in the event loop; does not block.

    What the work raises after that is not reported as an exception that nobody retrieved.
    """
    inner = asyncio.wrap_future(work)
    # asyncio.shield retrieves it only as long as somebody waits.
    inner.add_done_callback(lambda done: done.cancelled() or done.exception())
    return asyncio.shield(inner)
