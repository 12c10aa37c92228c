"""Virtual time: a heap of events, processes made of tasks, and the trace.

This module reads no clock and depends on no order of a set: the same seed gives the same run. A task is a generator
that yields where it would wait. No other task runs between two yields, so each yield is a place where the process can
be killed or paused.
"""

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
FOREVER = float("inf")
MAX_STEPS = 60_000
"""Maximum number of steps of one run; a run with more is in an endless loop."""


class Sleep(NamedTuple):
    """Wait for ``seconds`` of true time. ``label`` names the step that follows."""

    label: str
    seconds: float


class Signal:
    """A flag that wakes the one task that waits for it."""

    __slots__ = ("is_set", "waiter")

    def __init__(self) -> None:
        self.is_set = False
        self.waiter: tuple[Task, int] | None = None

    def set(self) -> None:
        """Wake the waiter, or let the next wait end at once."""
        if self.is_set:
            return
        self.is_set = True
        if self.waiter is not None:
            task, token = self.waiter
            self.waiter = None
            task.wake(token)


class Mailbox(Signal, Generic[T]):
    """A bounded queue that wakes its reader."""

    __slots__ = ("items", "maximum")

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self.maximum = maximum
        self.items: deque[T] = deque()

    def put(self, item: T) -> bool:
        """False: the mailbox is full; the item is dropped."""
        if len(self.items) >= self.maximum:
            return False
        self.items.append(item)
        self.set()
        return True


class Await(NamedTuple):
    """Wait until the signal is set, or until ``seconds`` of true time passed. The signal is cleared on waking."""

    label: str
    signal: Signal
    seconds: float = FOREVER


Steps = Generator[Sleep | Await, None, None]


class LocalClock:
    """A clock of one host: monotonic time that drifts, and wall time that also jumps."""

    def __init__(self, kernel: "Kernel", offset: float, rate: float) -> None:
        self._kernel = kernel
        self._offset = offset
        self._rate = rate
        self.jumped = 0.0

    def now(self) -> float:
        """Monotonic seconds."""
        return self._offset + self._rate * self._kernel.now

    def true(self, local: float) -> float:
        """The true time at which the monotonic clock shows ``local``."""
        return (local - self._offset) / self._rate

    def wall(self) -> float:
        """Seconds since 1970 on this host's clock."""
        return 1.7e9 + self.now() + self.jumped


class Process:
    """A program on a host. It can be killed, paused and continued."""

    def __init__(self, kernel: "Kernel", kind: str, name: str, clock: LocalClock) -> None:
        self.kernel = kernel
        self.kind = kind
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused = False
        self._paused_at = 0.0
        self._pauses: list[tuple[float, float]] = []
        """The begins and ends of those that have ended."""
        self._stalled: list[tuple[Task, int]] = []
        self._tasks: list[Task] = []

    def spawn(self, steps: Steps) -> None:
        """Start one more task."""
        task = Task(self, steps)
        self._tasks.append(task)
        task.wake(task.token)

    def kill(self) -> None:
        """End at once: none of its tasks runs any more."""
        self.alive = False
        for task in self._tasks:
            task.token = -1
        self._tasks.clear()
        self._stalled.clear()
        self.kernel.trace(self.name, "killed")

    def pause(self, seconds: float) -> None:
        """Suspend all tasks; clocks go on and messages queue up."""
        if self.paused:
            return
        self.paused = True
        self._paused_at = self.kernel.now
        self.kernel.trace(self.name, "paused", seconds)
        self.kernel.at(self.kernel.now + seconds, self.unpause)

    def unpause(self) -> None:
        """Continue all tasks."""
        if not self.paused:
            return
        self.paused = False
        self._pauses.append((self._paused_at, self.kernel.now))
        self.kernel.trace(self.name, "goes on")
        stalled, self._stalled = self._stalled, []
        for task, token in stalled:
            task.wake(token)

    def since(self, seconds: float) -> float:
        """The true time after which the process, which is not paused now, has run for these seconds."""
        found = self.kernel.now - seconds
        for begin, end in reversed(self._pauses):
            if end <= found:
                break
            found -= end - begin
        return found

    def is_paused(self) -> bool:
        """Whether the process is paused now: the step's own hook may have paused it."""
        return self.paused

    def stall(self, task: "Task", token: int) -> None:
        """Keep a wake-up until the pause is over."""
        self._stalled.append((task, token))

    @property
    def running(self) -> bool:
        """True while it has a task."""
        return self.alive and bool(self._tasks)

    def ended(self, task: "Task") -> None:
        """A task ended."""
        self._tasks.remove(task)


class Task:
    """One thread of a process."""

    __slots__ = ("label", "process", "signal", "steps", "token")

    def __init__(self, process: Process, steps: Steps) -> None:
        self.process = process
        self.steps = steps
        self.token = 0
        self.label = "start"
        self.signal: Signal | None = None

    def wake(self, token: int) -> None:
        """Run now, unless another wake-up came before."""
        self.process.kernel.at(self.process.kernel.now, self.resume, token)

    def resume(self, token: int) -> None:
        """Run up to the next yield."""
        process = self.process
        if token != self.token:
            return
        if process.paused:
            process.stall(self, token)
            return
        kernel = process.kernel
        kernel.before_step(process, self.label)
        if token != self.token:
            return
        if process.is_paused():
            process.stall(self, token)
            return
        self.token = token + 1
        if self.signal is not None:
            self.signal.is_set = False
            self.signal.waiter = None
            self.signal = None
        kernel.steps += 1
        if kernel.tracing:
            kernel.trace(process.name, "·", self.label)
        wait = next(self.steps, None)
        if wait is None:
            if process.alive:
                process.ended(self)
        else:
            self.label = wait.label
            if isinstance(wait, Await):
                self._await(wait)
            else:
                kernel.at(kernel.now + wait.seconds, self.resume, self.token)
        kernel.after_step(process)

    def _await(self, wait: Await) -> None:
        kernel = self.process.kernel
        signal = wait.signal
        self.signal = signal
        if signal.is_set:
            kernel.at(kernel.now, self.resume, self.token)
            return
        signal.waiter = (self, self.token)
        if wait.seconds != FOREVER:
            kernel.at(kernel.now + max(wait.seconds, 0.0), self.resume, self.token)


def _no_hook(process: Process, label: str) -> None:
    """No hook before a step."""


def _no_check(process: Process) -> None:
    """No check after a step."""


class Kernel:
    """Virtual time of one run."""

    def __init__(self, seed: int, *, tracing: bool = False, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        self.steps = 0
        self.before_step: Callable[[Process, str], None] = _no_hook
        self.after_step: Callable[[Process], None] = _no_check
        self.tracing = tracing or show is not None
        self._show = show
        self._digest = hashlib.sha256()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0

    def rng(self, concern: str) -> random.Random:
        """The random numbers of one concern: a change in one concern does not change the others' numbers."""
        return random.Random(f"{self.seed} {concern}")

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        """Call at a true time; calls that are due at the same time run in the order of their ``at``."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call, arguments))

    def run(self, until: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, call, arguments = heapq.heappop(heap)
            self.now = max(self.now, when)
            if self.steps > MAX_STEPS:
                raise RuntimeError(f"more than {MAX_STEPS} steps: the run is in an endless loop")
            call(*arguments)
        self.now = until

    def trace(self, who: str, what: str, *details: object) -> None:
        """One line of the trace."""
        if not self.tracing:
            return
        line = f"{self.now:10.4f} {who:<12} {what}{''.join(f' {_plain(detail)}' for detail in details)}"
        self._digest.update(line.encode() + b"\n")
        if self._show is not None:
            self._show(line)

    @property
    def trace_hash(self) -> str:
        """SHA-256 over the lines of the trace so far."""
        return self._digest.hexdigest()


def _plain(detail: object) -> str:
    return f"{detail:.4f}" if isinstance(detail, float) else str(detail)
