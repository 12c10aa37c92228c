"""The bus that stands in for a network: it carries frames, as bytes, from every publisher to whoever matches."""

import os
import random
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from pubsub_lib.fault_injection import PERFECT, Loss, Lossy

Frames = tuple[bytes, ...]


class Inbox(Protocol):
    """What the bus knows of a subscriber."""

    def matches(self, head: bytes) -> bool:
        """Whether it asked for frames that begin like this."""

    def deliver(self, frames: Frames) -> None:
        """Take a message or drop it. Does not block."""

    def meet(self) -> None:
        """A publisher is there from now on. Does not block."""


class Desk(Protocol):
    """What the bus knows of a publisher."""

    def ask(self, frame: bytes) -> None:
        """Take a subscriber's question or drop it. Does not block."""

    def meet(self) -> None:
        """A subscriber is there from now on. Does not block."""


class MemoryBus:
    """One in-process network. Publishers and subscribers that are given the same bus meet; any thread may call.

    It lives as long as somebody holds it, an endpoint or a test.
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
        """From now on every subscriber's link misbehaves like this; with a seed the random choices begin anew."""
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
        """End every connection: publishers and subscribers reach each other no more, until ``restore``. Idempotent."""
        with self._lock:
            self._is_cut = True

    def restore(self) -> None:
        """Connect all of them again; each half is told. Idempotent."""
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
        """The link of one more subscriber. Each has random choices of its own, so that subscribers differ."""
        with self._lock:
            rng = random.Random(_seed_of(self._seed, self._made))
            link: Lossy[Frames] = Lossy(rng, self._loss, corrupt=truncate)
            self._links = {number: other for number, other in self._links.items() if other() is not None}
            self._links[self._made] = weakref.ref(link)
            self._made += 1
            return link

    def attach_inbox(self, inbox: Inbox) -> None:
        """Deliver to this subscriber from now on."""
        with self._lock:
            self._inboxes += (inbox,)
            desks = () if self._is_cut else self._desks
        if desks:
            inbox.meet()
        for desk in desks:
            desk.meet()

    def detach_inbox(self, inbox: Inbox) -> None:
        """Deliver no more. Harmless when it is not attached."""
        with self._lock:
            self._inboxes = tuple(other for other in self._inboxes if other is not inbox)

    def attach_desk(self, desk: Desk) -> None:
        """Pass subscribers' questions to this publisher from now on."""
        with self._lock:
            self._desks += (desk,)
            inboxes = () if self._is_cut else self._inboxes
        if inboxes:
            desk.meet()
        for inbox in inboxes:
            inbox.meet()

    def detach_desk(self, desk: Desk) -> None:
        """Ask no more. Harmless when it is not attached."""
        with self._lock:
            self._desks = tuple(other for other in self._desks if other is not desk)

    def send(self, *frames: bytes) -> int:
        """Offer a message to every subscriber that asked for it; returns to how many. Never blocks on one of them."""
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
        """Pass a subscriber's question to every publisher."""
        if self._is_cut:
            return
        for desk in self._desks:
            desk.ask(frame)


def truncate(frames: Frames, rng: random.Random) -> Frames:
    """Damage a message so that every receiver sees it: cut its body off."""
    *before, body = frames
    return (*before, body[: rng.randrange(len(body))] if body else body)


def _seed_of(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


class Registry:
    """Buses by name, weakly held: a bus ends with the last one who uses it."""

    def __init__(self, make: Callable[[str], MemoryBus] = MemoryBus) -> None:
        self._make = make
        self.forget()

    def forget(self) -> None:
        """Begin empty, with a new lock: after a fork the old one may be held by a thread that is not there."""
        self._lock = threading.Lock()
        self._buses: weakref.WeakValueDictionary[str, MemoryBus] = weakref.WeakValueDictionary()

    def bus(self, name: str) -> MemoryBus:
        """The bus of this name, made when there is none. Any thread."""
        with self._lock:
            found = self._buses.get(name)
            if found is None:
                found = self._buses[name] = self._make(name)
            return found


# The one thing that is shared in a process: publishers and subscribers that know only a name must meet somewhere.
# A forked child does not share it: the subscribers on the parent's buses have no threads there.
_registry = Registry()
os.register_at_fork(after_in_child=_registry.forget)


def bus(name: str = "default") -> MemoryBus:
    """The bus of this name in this process. Keep the result for as long as its settings matter: it is weakly held."""
    return _registry.bus(name)
