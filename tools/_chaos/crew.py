"""The participants of a run: start them, receive their messages, start again what ended, and end them in order."""

import queue
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from _children import ChildError

from _chaos.calm import Calm
from _chaos.figures import Figures
from _chaos.messages import Failed, Finish, Finished, Followed, Lied, Message, Ready, Stop, Wrote
from _chaos.participant import Participant
from _chaos.starting import Starter

LOOK: Final = 0.05
"""Seconds between two looks at what no message reports."""
AGAIN: Final = 0.5
"""Seconds until a process that ended by itself is started again."""


class Ended(msgspec.Struct, frozen=True):
    """A process that ended although no fault killed it. ``at``: seconds after the start of the writers.
    ``error``: the type of the exception that it reported, or "".
    """

    name: str
    at: float
    status: int
    sentence: str
    error: str = ""


class Crew:
    """For one thread. Methods raise ChildError (a process does not get ready, or does not end), StoreError, OSError."""

    def __init__(self, starter: Starter, folder: Path, patience: float) -> None:
        """``patience``: maximum number of seconds for one step."""
        self._starter = starter
        self._folder = folder
        self._patience = patience
        self._began = time.monotonic()
        self.began_at = time.time()
        """The start of the plan's time, in Unix seconds."""
        self._ready: set[tuple[str, int]] = set()
        self._failed: dict[str, Failed] = {}
        self._calm: Calm | None = None
        self.shutdown = 0.0
        """Seconds in which all services ended, one after the other."""
        self.figures = Figures()
        self.lies: set[tuple[str, int, int]] = set()
        """Topic, position and nonce of all links that liars sent."""
        self.finished: dict[str, Finished] = {}
        self.ended: list[Ended] = []
        self.services = starter.services()
        self.workers = starter.workers()
        self.replicas = starter.replicas()
        self.all: Mapping[str, Participant] = {**self.services, **self.workers, **self.replicas}

    # -- the steps -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all participants, and wait until each of them works. The time of the plan begins afterwards."""
        for each in (*self.services.values(), *self.replicas.values()):
            each.start()
        self._until("be ready", self._services_ready)
        for worker in self.workers.values():
            worker.start()
        parts = {(name, 1) for name in (*self.replicas, *self.workers)}
        self._until("be ready", lambda: parts <= self._ready)
        if self.ended:
            raise ChildError(f"{self.ended[0].name} ended with status {self.ended[0].status}: {self.ended[0].sentence}")
        self._began = time.monotonic()
        self.began_at = time.time()

    @property
    def now(self) -> float:
        """Seconds since the start of the writers."""
        return time.monotonic() - self._began

    def work(self, seconds: float) -> None:
        """Receive messages for this time, and start again the processes that ended by themselves."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            self._receive(min(max(0.0, left), LOOK))
            self._look(self.all)
            if left <= 0:
                return

    def calm(self, calm: Calm, seconds: float) -> list[str]:
        """Let the workers write without faults until each participant works again, at most this time. Returns what
        is then still missing, one sentence each.
        """
        self._calm = calm
        end = time.monotonic() + seconds
        while (problems := calm.problems()) and time.monotonic() < end:
            self.work(LOOK)
        self._calm = None
        return problems

    def stop_workers(self) -> None:
        """Let all workers end. Start those that do not run first: their end is the last record of their journal."""
        for worker in self.workers.values():
            worker.start()
            worker.order(Stop())
        self._until("end", lambda: all(self._has_ended(worker, Stop()) for worker in self.workers.values()))

    def finish_replicas(self, position: int) -> None:
        """Let every replica reach this position, write its objects and end."""
        orders = {name: Finish(position, str(self.dump(name)), self._patience) for name in self.replicas}
        for name, replica in self.replicas.items():
            replica.start()
            replica.order(orders[name])
        self._until(
            "handle all changes and end",
            lambda: all(self._has_ended(self.replicas[name], orders[name]) for name in orders),
            2 * self._patience,
        )

    def end_services(self) -> None:
        """End the services with SIGTERM; afterwards only this process uses the database."""
        for service in self.services.values():
            service.start()
        # A signal during the start of Python would end it at once.
        self._until("be ready", self._services_ready)
        began = time.monotonic()
        for service in self.services.values():
            service.terminate(self._patience)
        self.shutdown = time.monotonic() - began

    def dump(self, replica: str) -> Path:
        """The file to which a replica writes its objects."""
        return self._folder / f"{replica}.dump"

    def _services_ready(self) -> bool:
        """Whether the current process of each service is ready."""
        return all(each.running and self._starter.ready[name].ready() for name, each in self.services.items())

    # -- messages ------------------------------------------------------------------------------------------------

    def _receive(self, seconds: float) -> None:
        """Note all messages that are there; wait at most this time for the first one."""
        try:
            self._note(
                *self._starter.received.get(timeout=seconds) if seconds > 0 else self._starter.received.get_nowait()
            )
            while True:
                self._note(*self._starter.received.get_nowait())
        except queue.Empty:
            return

    def _note(self, name: str, start: int, message: Message) -> None:
        if self._calm is not None:
            self._calm.note(name, start, message)
        match message:
            case Ready():
                self._ready.add((name, start))
            case Wrote():
                self.figures.wrote(name, start, message)
            case Followed():
                self.figures.followed(name, start, message)
            case Finished():
                self.finished[name] = message
            case Lied():
                self.lies.add(message.place)
            case Failed():
                self._failed[name] = message

    def was_ready(self, each: Participant) -> bool:
        """Whether the current or last process of this participant, or of a peer, reported that it works."""
        self._receive(0.0)
        return (each.name, each.starts) in self._ready

    def _look(self, at: Mapping[str, Participant]) -> None:
        for each in at.values():
            if each.running and each.status() is not None:
                self.ended_by_itself(each)
            elif not each.running and each.again_at is not None and time.monotonic() >= each.again_at:
                each.start()

    def ended_by_itself(self, each: Participant) -> None:
        """Note that a process has ended although no fault killed it, and release it."""
        status = each.status()
        assert status is not None
        words = each.forget()
        self._receive(0.0)
        failed = self._failed.pop(each.name, Failed(words))
        self.ended.append(Ended(each.name, round(self.now, 3), status, failed.sentence, failed.error))
        each.again_at = time.monotonic() + AGAIN

    def _has_ended(self, each: Participant, order: Stop | Finish) -> bool:
        """Whether a worker or replica ended as ordered. One that fails instead is started and ordered again."""
        status = each.status()
        if status == 0:
            each.forget()
            each.over = True
        elif status is not None:
            self.ended_by_itself(each)
        elif not each.running and not each.over and each.again_at is not None and time.monotonic() >= each.again_at:
            each.start()
            each.order(order)
        return each.over

    def _until(self, what: str, done: Callable[[], bool], patience: float | None = None) -> None:
        end = time.monotonic() + (self._patience if patience is None else patience)
        while not done():
            self._receive(LOOK)
            self._look(self.services)  # workers and replicas have orders to end
            if time.monotonic() > end:
                late = [each.name for each in self.all.values() if each.running]
                raise ChildError(f"not all processes could {what} within {self._patience:.0f} s; running: {late}")
        self._receive(0.0)
