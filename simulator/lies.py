"""The lies of a run, so that invariants can distinguish them from mistakes of a replica."""

from pubsub_lib.core.model import Link, Point


class Lies:
    """Points of links that were never committed, and the UUIDs of the liars."""

    def __init__(self) -> None:
        self.forged: dict[Point, str] = {}
        """A forged point -> the UUID of the publisher that sent it."""
        self.altered: dict[Point, None] = {}
        """Points of true links that were sent with other values."""
        self.rolled_back: dict[Point, str] = {}
        """Points of transactions that were rolled back and handed over -> the UUID of the worker."""
        self.liars: dict[str, None] = {}
        """UUIDs that only liars used."""
        self.unleased: dict[str, None] = {}
        """UUIDs of liars that never had a lease."""
        self.stolen: dict[str, None] = {}
        """UUIDs of services that a liar used."""

    def add(self, link: Link, uuid: str) -> None:
        """A publisher sends a link that was never committed."""
        self.forged.setdefault(link.point, uuid)
