"""Runs threads one at a time, in virtual time, and decides at each synchronisation point which one continues.

A controlled thread is a real thread that waits for its *baton* (a lock of its own) whenever another one runs. The
primitives of :mod:`tests.scheduler.primitives` call :meth:`Scheduler.point` before every effect on other threads,
and :meth:`Scheduler.block` where a thread waits. Threads switch nowhere else, so that a run depends on the choices
alone, and can be repeated.
"""

import _thread
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any, Final, Protocol

NEVER_DUE: Final = float("inf")
MAX_STEPS: Final = 50_000
"""Maximum number of synchronisation points of one run; more mean an endless loop."""
MAX_LAG: Final = 1.0
"""Virtual seconds for which runnable threads do not run, at one choice of ``lags``."""
SHOWN_STEPS: Final = 60
"""Number of last steps in the report of a failure."""


class Killed(BaseException):
    """Ends a controlled thread because its run is over."""


class Failure(AssertionError):
    """A run broke an invariant. ``schedule`` replays it."""

    def __init__(self, reason: str, schedule: str, report: str) -> None:
        super().__init__(f"{reason}\nschedule: {schedule or '(no choice differs from the first)'}\n{report}")
        self.reason = reason
        self.schedule = schedule


class Chooser(Protocol):
    """Decides which thread runs."""

    @property
    def seed(self) -> int:
        """Seed of all other random numbers in the run."""

    def choose(self, options: int, preemptive: bool) -> int:
        """The number of a candidate. ``preemptive``: candidate 0 is the running thread, which could continue."""

    def schedule(self) -> str:
        """The choices so far, as text that replays them."""


class Task:
    """One controlled thread."""

    def __init__(self, number: int, name: str, run: Callable[[], object]) -> None:
        self.number = number
        self.name = name
        self.run = run
        self.thread: object = None
        """The result of ``current_thread()`` in it."""
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.done = False
        self.ready: Callable[[], bool] | None = None
        """Whether it may continue; None: it does not wait."""
        self.until = NEVER_DUE
        self.waits_for = ""
        self.holder: Callable[[], Task | None] = lambda: None
        """The thread that holds the lock for which it waits."""


class Scheduler:
    """One run. ``now`` is the virtual time in seconds; it passes only when every thread waits.

    ``lines``: files of which every line is a synchronisation point, for code that shares data without locks.
    ``lags``: time may also pass while threads could run, as on a busy machine.
    """

    def __init__(self, chooser: Chooser, *, lines: Collection[str] = (), lags: bool = False) -> None:
        self.now = 1000.0
        self.chooser = chooser
        self.failure: BaseException | None = None
        self.steps: deque[str] = deque(maxlen=SHOWN_STEPS)
        self._lines = frozenset(lines)
        self._lags = lags
        self._tasks: list[Task] = []
        self._begun: list[Task] = []
        self._here = threading.local()
        self.calm = False
        """No choices: candidate 0 continues. For the steps that prepare a scenario."""
        self._count = 0
        self._last = 0
        self._over = False
        self._finished = _thread.allocate_lock()
        self._finished.acquire()

    # -- a run -----------------------------------------------------------------------------------------------------

    def run(self, scenario: Callable[[], object]) -> None:
        """Run ``scenario`` as the first thread, and end every other thread after it. Raises Failure."""
        main = self.add("main", scenario)
        self._begin(main)
        main.baton.release()
        self._finished.acquire()
        if self.failure is not None:
            raise self.failure

    def add(self, name: str, run: Callable[[], object]) -> Task:
        """Add a thread that is not started yet."""
        task = Task(len(self._tasks), name, run)
        self._tasks.append(task)
        return task

    def start(self, task: Task) -> None:
        """Let it run from now on."""
        self._begin(task)
        self.point(f"starts {task.name}")

    @property
    def current(self) -> Task:
        """The running thread. RuntimeError in a thread that is not controlled."""
        found: Task | None = getattr(self._here, "task", None)
        if found is None:
            raise RuntimeError(f"{threading.current_thread().name!r} is not a controlled thread")
        return found

    @property
    def controls_this_thread(self) -> bool:
        """False in the threads of the test runner."""
        return hasattr(self._here, "task")

    @property
    def is_over(self) -> bool:
        """Whether threads are being ended."""
        return self._over

    def fail(self, reason: str) -> None:
        """End the run: an invariant is broken. Raises Killed, which no ``except Exception`` catches."""
        if not self._over:
            self._note_failure(reason)
        raise Killed

    def check(self, holds: object, reason: str) -> None:
        """``fail`` unless ``holds``."""
        if not holds:
            self.fail(reason)

    # -- synchronisation points --------------------------------------------------------------------------------------

    def point(self, what: str) -> None:
        """The running thread is about to have an effect on others: one of them may run first."""
        task = self.current
        self._step(task, what)
        self._switch(task)

    def block(
        self,
        what: str,
        ready: Callable[[], bool],
        until: float = NEVER_DUE,
        holder: Callable[[], Task | None] = lambda: None,
    ) -> bool:
        """Let the running thread wait until ``ready()``, or until the virtual time ``until``; whether it is ready.
        ``ready`` is called by any thread, between two steps, and must change nothing. ``holder``: the awaited thread.
        """
        task = self.current
        self._step(task, what)
        task.ready, task.until, task.waits_for, task.holder = ready, until, what, holder
        self._switch(task)
        task.ready, task.until = None, NEVER_DUE
        return ready()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass for this thread."""
        self.block(f"sleeps {seconds:g} s", lambda: False, self.now + seconds)

    # -- internals ---------------------------------------------------------------------------------------------------

    def _step(self, task: Task, what: str) -> None:
        if self._over:
            raise Killed
        self._count += 1
        self.steps.append(f"{self.now:10.3f}  {task.name:<20} {what}")
        if self._count > MAX_STEPS:
            self.fail(f"{MAX_STEPS} steps without an end: the threads are in an endless loop")

    def _switch(self, task: Task | None) -> None:
        """Hand the baton to the chosen thread. ``task``: the thread that has it, None when that thread has ended."""
        try:
            following = self._next(task)
        except Exception as error:  # noqa: BLE001 - a fault of the test itself, which must not become a hang
            self._over, self.failure = True, self.failure or error
            following = self._next(task) if task is None else task
        if following is None:
            self._finished.release()
        elif following is not task:
            following.baton.release()
            if task is not None:
                task.baton.acquire()
        if self._over and task is not None:
            raise Killed

    def _next(self, task: Task | None) -> Task | None:
        if self._over:
            return next(iter(self._alive()), None)  # its next step ends it
        while True:
            alive = self._alive()
            candidates = [each for each in alive if _can_run(each, self.now)]
            preemptive = task in candidates
            last = task.number if task is not None else self._last
            candidates.sort(key=lambda each: (each is not task, each.number <= last, each.number))
            deadline = min((each.until for each in alive), default=NEVER_DUE)
            passes = self._lags and self.now < deadline < NEVER_DUE
            if not candidates:
                if deadline == NEVER_DUE:
                    self._note_failure("deadlock: every thread waits, and no wait has an end")
                    return task if task is not None else self._next(None)
                self.now = max(self.now, deadline)
                continue
            options = len(candidates) + passes
            chosen = self.chooser.choose(options, preemptive) if options > 1 and not self.calm else 0
            if chosen < len(candidates):
                return candidates[chosen]
            self.now = min(deadline, self.now + MAX_LAG)

    def _alive(self) -> list[Task]:
        return [task for task in self._begun if not task.done]

    def _begin(self, task: Task) -> None:
        self._begun.append(task)
        _thread.start_new_thread(self._bootstrap, (task,))

    def _bootstrap(self, task: Task) -> None:
        self._here.task = task
        task.baton.acquire()
        try:
            if not self._over:
                if self._lines:
                    sys.settrace(self._trace)
                task.run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - an exception that ends a thread is the run's result
            if not self._over:  # otherwise it failed because its waits were ended
                self._note_failure(f"{task.name} ended by {type(error).__name__}: {error}")
        finally:
            sys.settrace(None)
        task.done = True
        self._last = task.number
        if task.number == 0:
            self._over = True
        self._switch(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in self._lines:
            return None
        if event == "line":
            self.point(f"line {frame.f_lineno} of {frame.f_code.co_name}")
        return self._trace

    def _note_failure(self, reason: str) -> None:
        self._over = True
        if self.failure is None:
            self.failure = Failure(reason, self.chooser.schedule(), self._report())

    def _report(self) -> str:
        lines = ["threads:"]
        for task in self._alive():
            doing = f"waits: {task.waits_for}" if task.ready is not None else "can run"
            until = f" until {task.until:.3f}" if task.until < NEVER_DUE else ""
            holder = task.holder() if task.ready is not None else None
            held = f", held by {holder.name}" if holder is not None else ""
            lines.append(f"  {task.name:<20} {doing}{until}{held}")
        return "\n".join([*lines, "last steps (time, thread, its next action):", *self.steps])


def _can_run(task: Task, now: float) -> bool:
    return task.ready is None or task.until <= now or task.ready()
