"""Measures, while clients attack a service, for how long the others received nothing, and what ``/ready`` answered.

On a busy machine most of such a time is waiting for a processor, of this program and of the service's sending thread.
Both are measured and excused.
"""

import bisect
import http.client
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.warm_start import Running

HANGS = "the thread that sends messages hangs"
STEP = 0.05
"""Seconds between two samples."""
TICKS = 100
"""Of the processor times in ``/proc``, for a second."""


class Excuses:
    """A thread that samples the sending thread: it waits for a processor while it could run, and does not."""

    def __init__(self, process: Running, thread: int) -> None:
        self._stat = Path(f"/proc/{process.pid}/task/{thread}/stat")
        self._times: list[float] = []
        self._sums: list[float] = []
        """All excused seconds until each of the times."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Excuses":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LONG)

    def between(self, begin: float, end: float) -> float:
        """The excused seconds of this time, and of the samples that it begins and ends in."""
        first = max(0, bisect.bisect_right(self._times, begin) - 1)
        last = min(len(self._times) - 1, bisect.bisect_left(self._times, end))
        return max(0.0, self._sums[last] - self._sums[first])

    def _sample(self) -> tuple[float, bool, float]:
        """The time, whether the thread could run, and its processor time until now."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return time.monotonic(), fields[0] == "R", (int(fields[11]) + int(fields[12])) / TICKS

    def _run(self) -> None:
        before = self._sample()
        total = 0.0
        while not self._stop.wait(STEP):
            now = self._sample()
            passed = now[0] - before[0]
            waited = passed - (now[2] - before[2]) if before[1] and now[1] else 0.0
            total += max(waited, passed - 2 * STEP)  # the second: this program waited for a processor
            self._times.append(now[0])
            self._sums.append(total)
            before = now


class Look(NamedTuple):
    """One request for ``/ready``. ``status`` is 0 without an answer."""

    begin: float
    end: float
    status: int
    text: str


class Wait(NamedTuple):
    """A change: from the moment when its writer knew that it was committed until a replica had it."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long no replica had the change."""
        return self.end - self.begin


class Observed(msgspec.Struct):
    """What was seen, with the excuses for it."""

    waits: list[Wait]
    looks: list[Look]
    excuses: Excuses

    def longest(self) -> float:
        """The longest time for which a committed change did not arrive, without what is excused."""
        return max(each.seconds - self.excuses.between(each.begin, each.end) for each in self.waits)

    def lies(self, maximum: float, least: float) -> list[Look]:
        """Answers that were not true: "ready" while a change had waited for ``maximum`` seconds, or that nothing is
        sent while no change waited for ``least`` seconds.
        """
        return [each for each in self.looks if self._lied(each, maximum, least)]

    def _lied(self, look: Look, maximum: float, least: float) -> bool:
        if look.status == 200:
            late = maximum + self.excuses.between(look.begin - maximum, look.end)
            return any(each.begin < look.begin - late and each.end > look.end for each in self.waits)
        if HANGS not in look.text:
            return True
        return not any(
            each.seconds >= least and each.begin <= look.end and each.end >= look.begin - least for each in self.waits
        )


class Observer:
    """Writes by a worker, receives by a replica, and asks for ``/ready``, each in a rhythm of its own."""

    def __init__(self, host: Host, watched: Watched, worker: Running) -> None:
        self._host = host
        self._worker = worker
        self._committed: list[tuple[int, float]] = []
        self._received: list[tuple[int, float]] = []
        self.looks: list[Look] = []
        self._stop = threading.Event()
        self._watched = watched
        watched.replica.on("item", self._receive)

    def observe(self, seconds: float, enough: Callable[[], bool], excuses: Excuses) -> Observed:
        """Observe for this time, and until ``enough()``; then until all changes have arrived."""
        asker = threading.Thread(target=self._ask)
        asker.start()
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until or not enough():
                assert time.monotonic() < until + LONG, "what the test waits for does not happen"
                position = write(self._worker, 1)
                self._committed.append((position, time.monotonic()))
                time.sleep(STEP)
        finally:
            self._stop.set()
            asker.join(LONG)
        self._watched.replica.wait_handled(position, LONG, topics=self._watched.topics)
        return Observed(self._waits(), self.looks, excuses)

    def _waits(self) -> list[Wait]:
        received = sorted(self._received)
        found = []
        for position, begin in self._committed:
            end = min(moment for version, moment in received if version >= position)
            found.append(Wait(begin, max(begin, end)))
        return found

    def _receive(self, event: Any) -> None:
        self._received.append((event.version, time.monotonic()))

    def _ask(self) -> None:
        while not self._stop.wait(2 * STEP):
            begin = time.monotonic()
            client = http.client.HTTPConnection(self._host.address, self._host.metrics_port, timeout=LONG)
            try:
                client.request("GET", "/ready")
                answer = client.getresponse()
                status, text = answer.status, answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                status, text = 0, str(error)
            finally:
                client.close()
            self.looks.append(Look(begin, time.monotonic(), status, text))
