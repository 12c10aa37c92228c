"""The notifier of an event loop: one wake-up for many notifications."""

import asyncio
from typing import Any

import pytest
from _patience import longest

from pubsub_lib.replica.notifier import Notifier

LONG = longest(120.0)


def test_notifier_wakes_once_for_many_notifications_and_ignores_a_closed_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    notifiers: list[Notifier] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        notifier = Notifier(loop)
        notifiers.append(notifier)
        calls: list[object] = []
        soon = loop.call_soon_threadsafe

        def counted(*given: Any) -> Any:
            calls.append(given)
            return soon(*given)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        notifier.notify()
        assert calls == [], "there are no waiters"
        with notifier.listening() as waiter:
            for _ in range(100):
                notifier.notify()
            await asyncio.wait_for(waiter.wait(), LONG)
            assert len(calls) == 1
            waiter.clear()
            notifier.notify()
            await asyncio.wait_for(waiter.wait(), LONG)
            assert len(calls) == 2
        notifier._waiters = {asyncio.Event()}  # a waiter that was not removed

    asyncio.run(main())
    notifiers[0].notify()
