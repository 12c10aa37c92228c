"""Controlled replacements of ``threading``, ``time`` and ``queue.SimpleQueue``.

Same names, same meaning; each reports its next step to the scheduler. Only the parts that the product uses exist.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.scheduler.scheduler import NEVER_DUE, Scheduler, Task


def _site() -> str:
    """The first line of the call stack outside of this file: names a lock by the line that made it."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


class Lock:
    """``threading.Lock``, and with ``reentrant`` its RLock."""

    def __init__(self, scheduler: Scheduler, *, reentrant: bool = False) -> None:
        self._scheduler = scheduler
        self._reentrant = reentrant
        self.owner: Task | None = None
        self._depth = 0
        self.name = f"the lock of {_site()}"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler, task = self._scheduler, self._scheduler.current
        if self._reentrant and self.owner is task:
            self._depth += 1
            return True
        if not blocking:
            scheduler.point(f"tries {self.name}")
        else:
            scheduler.point(f"takes {self.name}")
            until = scheduler.now + timeout if timeout >= 0 else NEVER_DUE
            if self.owner is not None:
                scheduler.block(self.name, lambda: self.owner is None, until, holder=lambda: self.owner)
        if self.owner is not None:
            return False
        self.owner, self._depth = task, 1
        return True

    def release(self) -> None:
        # Not a point: other threads continue at the next point, with one choice less.
        if self._scheduler.is_over:
            return
        if self.owner is None:
            raise RuntimeError("release of a lock that no thread holds")
        if self._reentrant and self.owner is not self._scheduler.current:
            raise RuntimeError("release of a lock that another thread holds")
        self._depth -= 1
        if not self._depth:
            self.owner = None

    def locked(self) -> bool:
        return self.owner is not None

    @property
    def is_mine(self) -> bool:
        """Whether the running thread holds it."""
        return self.owner is self._scheduler.current

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def give_up(self) -> int:
        """Release all acquisitions. Returns their number."""
        depth, self._depth, self.owner = self._depth, 0, None
        return depth

    def take_back(self, depth: int) -> None:
        """The reverse of ``give_up``."""
        self.acquire()
        self._depth = depth


class _Waiter:
    """One thread's wait on a condition."""

    notified = False


class Condition:
    """``threading.Condition``."""

    def __init__(self, scheduler: Scheduler, lock: Lock | None = None) -> None:
        self._scheduler = scheduler
        self.lock = lock if lock is not None else Lock(scheduler, reentrant=True)
        self._waiters: list[_Waiter] = []
        self.acquire, self.release = self.lock.acquire, self.lock.release
        self._name = f"the condition of {_site()}"

    def __enter__(self) -> bool:
        return self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._check()
        waiter = _Waiter()
        self._waiters.append(waiter)
        depth = self.lock.give_up()
        until = NEVER_DUE if timeout is None else self._scheduler.now + max(timeout, 0.0)
        try:
            self._scheduler.block(self._name, lambda: waiter.notified, until)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        self.lock.take_back(depth)
        return waiter.notified

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = NEVER_DUE if timeout is None else self._scheduler.now + timeout
        while not (result := predicate()):
            left = until - self._scheduler.now
            if left <= 0:
                break
            self.wait(None if left == NEVER_DUE else left)
        return result

    def notify(self, n: int = 1) -> None:
        self._check()
        for waiter in self._waiters[:n]:
            waiter.notified = True
        del self._waiters[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    def _check(self) -> None:
        if not self.lock.is_mine:
            raise RuntimeError("wait or notify without the lock")


class Event:
    """``threading.Event``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._name = f"the event of {_site()}"

    def is_set(self) -> bool:
        self._scheduler.point(f"looks at {self._name}")
        return self._set

    def set(self) -> None:
        self._scheduler.point(f"sets {self._name}")
        self._set = True

    def clear(self) -> None:
        self._scheduler.point(f"clears {self._name}")
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        until = NEVER_DUE if timeout is None else self._scheduler.now + max(timeout, 0.0)
        return self._scheduler.block(self._name, lambda: self._set, until)


class Thread:
    """``threading.Thread``."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object] = lambda: None,
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool | None = None,
    ) -> None:
        self._scheduler = scheduler
        self.name = name or "thread"
        self.daemon = daemon
        self.ident: int | None = None
        self.task = scheduler.add(self.name, lambda: target(*args))
        self.task.thread = self

    def start(self) -> None:
        if self.ident is not None:
            raise RuntimeError("threads can only be started once")
        self.ident = self.task.number + 1
        self._scheduler.start(self.task)

    def join(self, timeout: float | None = None) -> None:
        until = NEVER_DUE if timeout is None else self._scheduler.now + max(timeout, 0.0)
        self._scheduler.block(f"the end of {self.name}", lambda: self.task.done, until)

    def is_alive(self) -> bool:
        return self.ident is not None and not self.task.done


class SimpleQueue:
    """``queue.SimpleQueue``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()
        self._name = f"the queue of {_site()}"

    def put(self, item: Any) -> None:
        self._scheduler.point(f"puts into {self._name}")
        self._items.append(item)

    def get(self) -> Any:
        self._scheduler.block(self._name, lambda: bool(self._items))
        return self._items.popleft()


class Threading:
    """In place of the module ``threading``."""

    TIMEOUT_MAX = threading.TIMEOUT_MAX
    local = threading.local

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.Lock = partial(Lock, scheduler)
        self.RLock = partial(Lock, scheduler, reentrant=True)
        self.Condition = partial(Condition, scheduler)
        self.Event = partial(Event, scheduler)
        self.Thread = partial(Thread, scheduler)

    def current_thread(self) -> object:
        return self._scheduler.current.thread

    def get_ident(self) -> int:
        return self._scheduler.current.number + 1


class Time:
    """In place of the module ``time``. Threads that are not controlled use the real one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now if self._scheduler.controls_this_thread else time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
