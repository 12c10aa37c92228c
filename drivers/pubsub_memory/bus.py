"""An in-process bus in place of a network. It carries frames, as bytes, from each publisher to matching subscribers."""

import os
import random
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from pubsub_lib.fault_injection import PERFECT, Loss, Lossy

Frames = tuple[bytes, ...]


class Inbox(Protocol):
    """The part of a subscriber that the bus uses."""

    def matches(self, head: bytes) -> bool:
        """Whether the subscriber wants messages with this topic frame."""

    def deliver(self, frames: Frames) -> None:
        """Queue a message or drop it. Does not block."""

    def meet(self) -> None:
        """A publisher was connected. Does not block."""


class Desk(Protocol):
    """The part of a publisher that the bus uses."""

    def ask(self, frame: bytes) -> None:
        """Queue a subscriber's hello request or drop it. Does not block."""

    def meet(self) -> None:
        """A subscriber was connected. Does not block."""


class MemoryBus:
    """One in-process network. It connects all publishers and subscribers that use it. Any thread may call.

    The bus lives as long as an endpoint or a test holds a reference to it.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._inboxes: tuple[Inbox, ...] = ()
        self._desks: tuple[Desk, ...] = ()
        self._is_cut = False
        self._loss = PERFECT
        self._seed = 0
        self._links: dict[int, weakref.ref[Lossy[Frames]]] = {}
        self._made = 0

    def set_loss(self, loss: Loss, seed: int | None = None) -> None:
        """Set the faults of every subscriber's link. With a seed, the random choices start again from it."""
        with self._lock:
            self._loss = loss
            if seed is not None:
                self._seed = seed
            for number, reference in self._links.items():
                link = reference()
                if link is not None:
                    link.loss = loss
                    if seed is not None:
                        link.reseed(random.Random(_seed_of(seed, number)))

    def cut(self) -> None:
        """Drop all messages and hello requests until ``restore``. Idempotent."""
        with self._lock:
            self._is_cut = True

    def restore(self) -> None:
        """Connect all endpoints again and notify each of them. Idempotent."""
        with self._lock:
            if not self._is_cut:
                return
            self._is_cut = False
            inboxes, desks = self._inboxes, self._desks
        if desks:
            for inbox in inboxes:
                inbox.meet()
        if inboxes:
            for desk in desks:
                desk.meet()

    def new_link(self) -> Lossy[Frames]:
        """Make the link of one more subscriber. Each link has its own random choices, so that subscribers differ."""
        with self._lock:
            rng = random.Random(_seed_of(self._seed, self._made))
            link: Lossy[Frames] = Lossy(rng, self._loss, corrupt=truncate)
            self._links = {number: other for number, other in self._links.items() if other() is not None}
            self._links[self._made] = weakref.ref(link)
            self._made += 1
            return link

    def attach_inbox(self, inbox: Inbox) -> None:
        """Start to deliver to this subscriber."""
        with self._lock:
            self._inboxes += (inbox,)
            desks = () if self._is_cut else self._desks
        if desks:
            inbox.meet()
        for desk in desks:
            desk.meet()

    def detach_inbox(self, inbox: Inbox) -> None:
        """Stop to deliver to this subscriber. Idempotent."""
        with self._lock:
            self._inboxes = tuple(other for other in self._inboxes if other is not inbox)

    def attach_desk(self, desk: Desk) -> None:
        """Start to pass hello requests to this publisher."""
        with self._lock:
            self._desks += (desk,)
            inboxes = () if self._is_cut else self._inboxes
        if inboxes:
            desk.meet()
        for inbox in inboxes:
            inbox.meet()

    def detach_desk(self, desk: Desk) -> None:
        """Stop to pass hello requests to this publisher. Idempotent."""
        with self._lock:
            self._desks = tuple(other for other in self._desks if other is not desk)

    def send(self, *frames: bytes) -> int:
        """Deliver a message to every matching subscriber; return their number. Never blocks on a subscriber."""
        if self._is_cut:
            return 0
        head = frames[0] if frames else b""
        reached = 0
        for inbox in self._inboxes:
            if inbox.matches(head):
                inbox.deliver(frames)
                reached += 1
        return reached

    def ask(self, frame: bytes) -> None:
        """Pass a subscriber's hello request to every publisher."""
        if self._is_cut:
            return
        for desk in self._desks:
            desk.ask(frame)


def truncate(frames: Frames, rng: random.Random) -> Frames:
    """Cut a message's body, so that every receiver finds the damage."""
    *before, body = frames
    return (*before, body[: rng.randrange(len(body))] if body else body)


def _seed_of(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


class Registry:
    """Buses by name, weakly referenced: a bus ends with its last user."""

    def __init__(self, make: Callable[[str], MemoryBus] = MemoryBus) -> None:
        self._make = make
        self.forget()

    def forget(self) -> None:
        """Start empty, with a new lock: after a fork the old one may be held by a thread that does not exist here."""
        self._lock = threading.Lock()
        self._buses: weakref.WeakValueDictionary[str, MemoryBus] = weakref.WeakValueDictionary()

    def bus(self, name: str) -> MemoryBus:
        """Return the bus of this name; make it if necessary. Any thread."""
        with self._lock:
            found = self._buses.get(name)
            if found is None:
                found = self._buses[name] = self._make(name)
            return found


# Global, because publishers and subscribers that know only a bus's name must find the same bus.
# A forked child does not share it: the subscribers on the parent's buses have no threads there.
_registry = Registry()
os.register_at_fork(after_in_child=_registry.forget)


def bus(name: str = "default") -> MemoryBus:
    """Return the bus of this name in this process. Keep the result while its settings matter: the registry's reference
    is weak."""
    return _registry.bus(name)
