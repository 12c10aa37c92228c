"""The operations that the tracker requests from its caller, in this order. Plain data, so that a simulator can execute
them too.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pubsub_lib.core.model import Full, Head, Link, Point, Want


class Apply(msgspec.Struct, frozen=True):
    """Apply these links to the cache, in order; report a mismatch with ``Tracker.mismatched``."""

    links: Sequence[Link]
    waited: Mapping[tuple[str, Point], tuple[str, str] | None] | None = None
    """Service name and UUID of the publisher of each link that had waited, by topic and point; None: several publishers
    sent parts of it. Links that had not waited are missing.
    """


class Replace(msgspec.Struct, frozen=True):
    """Replace a chain's contents in one step: of one topic, or for ``ALL`` of everything."""

    chain: str
    answer: Full
    before: Point | None = None
    """Known until now."""
    source: tuple[str, str] | None = None
    """Service name and UUID of the publisher whose message led to that point; None: a reading of the store did."""
    reached: float = 0.0
    """When that point was reached."""


class Compare(msgspec.Struct, frozen=True):
    """Compare count and digest of these topics with their heads, which known has reached; report a difference with
    ``Tracker.mismatched``.
    """

    heads: Mapping[str, Head]


class RequestHello(msgspec.Struct, frozen=True):
    """Ask every publisher for a hello reply about these topics (``ALL``: the store's head)."""

    nonce: str
    topics: tuple[str, ...]


class StartSync(msgspec.Struct, frozen=True):
    """Read these from the store and answer with ``Tracker.sync_done`` or ``sync_failed`` under this number.

    ``causes``: the reason per chain, for metrics and the audit. ``refresh``: the last sync failed, so a relay is to
    prove its state again before it answers. ``nonce``: that of the replica's last hello request; "" before the first.
    """

    number: int
    wants: Mapping[str, Want]
    causes: Mapping[str, str]
    refresh: bool = False
    nonce: str = ""


Effect = Apply | Replace | Compare | RequestHello | StartSync
