"""Work that continues when its waiter is cancelled."""

import asyncio
import gc
from concurrent.futures import Future
from typing import Any

import pytest

from pubsub_lib.replica.futures import shielded


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
