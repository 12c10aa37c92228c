"""A bounded queue from a subscriber's connection to its receiving thread, for drivers whose connection has a thread of
its own.
"""

import threading
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ReceiveQueue(Generic[Item]):
    """Bounded by number and by size, which the caller states. Any thread; no method but ``wait`` blocks."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._items: list[Item] = []
        self._bytes = 0
        self._closed = False

    def put(self, item: Item, size: int) -> bool:
        """Queue an item. False when there is no room; an empty queue takes an item of any size."""
        with self._changed:
            if self._items and (len(self._items) >= self._max_items or self._bytes + size > self._max_bytes):
                return False
            self._add(item, size)
        return True

    def mark(self, item: Item) -> None:
        """Queue an item also when the queue is full, unless it is the last one already."""
        with self._changed:
            if not self._items or self._items[-1] is not item:
                self._add(item, 0)

    def wait(self) -> list[Item]:
        """Wait for items and return all, in order; none when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            taken, self._items, self._bytes = self._items, [], 0
            return taken

    def close(self) -> None:
        """End every wait. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, item: Item, size: int) -> None:
        self._items.append(item)
        self._bytes += size
        self._changed.notify()
