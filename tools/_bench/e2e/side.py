"""The contract of one measured system: a side, which opens sessions, in which processes write and watch."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
from _children import Children

from _bench.e2e.plan import Cell, Changes
from _bench.e2e.seen import Seen
from pubsub_lib.errors import PubSubError

Put = Callable[[Changes], None]
"""Writes one transaction. Returns when the system has confirmed it."""


class LeftOutError(PubSubError):
    """A system cannot be had on this machine; the text is one sentence."""


class LeftOut(msgspec.Struct, frozen=True):
    """A side that was not measured, or not completely. ``why``: one sentence."""

    name: str
    why: str


class Facts(msgspec.Struct, frozen=True):
    """What a reader must know of a side. ``lacks``: what it does not give that this library gives."""

    name: str
    client: str
    durable: str
    """What it has done when a write is confirmed."""
    lacks: str
    version: str = ""
    least_writers: int = 1
    """It is measured only in cells with at least this number of writers."""


class Session(Protocol):
    """One measurement's data, empty at first. Its methods run in forked processes."""

    def writer(self, number: int) -> AbstractContextManager[Put]:
        """Connect a writer."""

    def watch(self, seen: Seen) -> None:
        """Watch every key, and call ``seen`` for each change. Returns when ``seen`` is complete."""


class Side(Protocol):
    """A system with its Python client."""

    @property
    def facts(self) -> Facts:
        """For the report."""

    def session(self, children: Children, cell: Cell) -> AbstractContextManager[Session]:
        """Start what a measurement needs."""
