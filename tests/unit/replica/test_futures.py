"""Work on threads: it continues when its waiter is cancelled, and goes to the first pool that takes it."""

import asyncio
import gc
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pubsub_lib.replica.futures import shielded, submitted


def test_a_waiter_gets_the_result_or_exception_of_the_work() -> None:
    async def main() -> None:
        good: Future[int] = Future()
        good.set_result(7)
        assert await shielded(good) == 7
        bad: Future[int] = Future()
        bad.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await shielded(bad)

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [True, False])
def test_an_exception_of_the_work_is_not_reported_after_its_waiter_was_cancelled(cancelled: bool) -> None:
    reported: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        work: Future[int] = Future()
        waiting = shielded(work)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not work.cancelled(), "the work continues"
        if cancelled:
            work.cancel()
        else:
            work.set_exception(ValueError("too late"))
        await asyncio.sleep(0)  # the loop handles the end of the work
        del work, waiting
        gc.collect()

    asyncio.run(main())
    assert reported == []


def test_work_goes_to_the_first_pool_that_takes_it() -> None:
    with ThreadPoolExecutor(1) as refusing, ThreadPoolExecutor(1) as taking:
        refusing.shutdown()  # then it raises, as a pool whose thread cannot start
        assert submitted([refusing, taking], lambda: 7).result(60.0) == 7
        with pytest.raises(RuntimeError, match="shutdown"):
            submitted([refusing, refusing], lambda: 7)
