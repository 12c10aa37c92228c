"""The terms of the protocol as frozen data (docs/protocol.md, "Words").

All structs are array-like and ``gc=False``: they hold no cycles, and a million of them must not slow down the
collector; ``tools/bench objects`` measures memory and collections against parsed dicts.
Fields may only be appended, with a default: these structs are also the wire format.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

ALL = ""
"""In place of a topic: all topics. The store refuses an empty topic, so the name cannot be ambiguous."""
DEFAULT_TOPIC = "default"
"""The topic of an object that was never given one. A replica of named topics follows it as well, unless configured
otherwise, because objects without a topic belong to all replicas."""

MAX_NAME_BYTES = 255
"""Maximum length of a topic's, a table's and a service's UTF-8, in bytes."""
MAX_KEY_BYTES = 512
"""Maximum length of a key's UTF-8, in bytes."""
MAX_TRACE_CHARACTERS = 600
"""Maximum length of a trace context: 55 of a W3C traceparent, a space, 512 of a tracestate, and a reserve."""

MAX_NUMBER = 2**63 - 1
"""Largest position, version, count and sequence: they are signed 64-bit integers in databases and journals."""
MAX_SECONDS = 2**43
"""Largest absolute value of a time in seconds. In microseconds it still is a signed 64-bit integer."""
MAX_PARTS = 2**20
"""Maximum number of parts of one link's run, far above that of the largest transaction."""

NO_STORE = b""
"""In place of a store's id (16 random bytes): the id is not known, or a message of an older version has none."""

# Character bounds for decoding: a string of at most N bytes has at most N characters.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)]
Origin = Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY_BYTES)]
Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Part = Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTS)]
Digest = Annotated[int, msgspec.Meta(ge=0)]
Trace = Annotated[str, msgspec.Meta(max_length=MAX_TRACE_CHARACTERS)]

Action = Literal["create", "set", "delete"]


class Point(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place in a history: the position of a transaction's last change, and the transaction's random nonce.

    Equal points mean equal histories up to there; equal positions alone do not (a restored backup).
    """

    position: Position
    nonce: Position


ZERO = Point(0, 0)
"""The point before the first transaction: the head of an empty topic and of an empty store."""


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Create, set or delete of one object. ``version`` is the change's own position.

    ``value`` is canonical JSON as bytes, verbatim as stored; None for a delete.
    """

    table: Name
    key: Key
    action: Action
    version: Position
    value: bytes | None


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The changes of one transaction in one topic.

    ``prev`` is the topic's head before, ``point`` the transaction's point (and so the topic's head after it);
    ``count`` and ``digest`` are the topic's after it. ``tx_prev`` is the previous transaction's point and
    ``tx_links`` the number of links of this transaction: a replica of everything follows that chain.
    ``origin`` names the service that is to publish it ("" = none). ``written_at`` is the writer's wall clock in
    Unix seconds: for latency figures only, no decision depends on it. ``trace`` is the writer's trace context:
    a W3C traceparent, and after a space its tracestate when there is one ("" = none). It is sent in messages only and
    is not stored: a link that was read from the store has none.
    """

    topic: Name
    prev: Point
    point: Point
    changes: list[Change]
    count: Position
    digest: Digest
    tx_prev: Point
    tx_links: Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBER)]
    origin: Origin = ""
    written_at: float = 0.0
    trace: Trace = ""


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest point of a topic with its number of objects and their digest."""

    point: Point
    count: Position
    digest: Digest


EMPTY = Head(ZERO, 0, 0)
"""The head of a topic that was never written."""


class Heads(msgspec.Struct, frozen=True):
    """One consistent reading: the store's point, and the heads of the requested topics.

    The head of a requested topic that was never written is ``EMPTY``. ``everything``: the reading is of all topics, so
    a topic that is not in it was never written. Otherwise nothing is known of such a topic.
    """

    store: Point
    topics: Mapping[str, Head]
    store_id: bytes = NO_STORE
    everything: bool = True


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One object as a snapshot shows it. ``value`` is canonical JSON as stored."""

    table: str
    key: str
    version: int
    value: bytes


class Recorded(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the store has of a topic at the point ``judged`` of a :class:`Want`.

    ``held``: the topic's history contains the point; else the other fields mean nothing.
    """

    point: Point
    held: bool
    count: Position = 0
    digest: Digest = 0


class TopicSnapshot(msgspec.Struct, frozen=True):
    """All objects of one topic and its head, of one consistent reading.

    ``buckets`` is None for the whole topic; else ``records`` has all objects of these buckets and no others (the repair
    of a digest mismatch). ``changes`` are the last changes of objects in other buckets, since the point up to which the
    requesting replica had everything.
    """

    head: Head
    records: Sequence[Record]
    buckets: frozenset[int] | None = None
    changes: Sequence[Change] = ()


class Want(msgspec.Struct, frozen=True):
    """A sync's request for one chain.

    ``after``: the links after this point. None: all objects; or, when ``buckets`` holds the replica's own bucket
    digests (``{bucket: digest}``), only the objects of the buckets that differ. ``known`` is the point up to which the
    replica has everything, and at which its bucket digests hold. The answer shows whether the history contains that
    point, and may give the changes since then in place of the buckets that differ by them. ``judged``: a topic of the
    chain and a point of it, at which a publisher's count or digest differed from the replica's.
    """

    after: Point | None = None
    buckets: Mapping[int, int] | None = None
    known: Point | None = None
    judged: tuple[str, Point] | None = None


class Delta(msgspec.Struct, frozen=True):
    """The links of a chain after the requested point, complete and in chain order, and the chain's head.

    For ``ALL`` the links of all topics in commit order, and the store's point as head. ``heads``: the heads of the
    chain's topics in the same reading, to compare count and digest with.
    """

    links: Sequence[Link]
    head: Point
    heads: Mapping[str, Head] = {}


class Incomplete(msgspec.Struct, frozen=True):
    """The requested point is not in the store's history, or the changelog no longer reaches it: full sync."""


class Full(msgspec.Struct, frozen=True):
    """The objects of a chain: of one topic, or for ``ALL`` of every topic. ``head`` is the chain's head.

    ``contains_known``: whether the chain's history up to ``head`` contains the point ``known`` of the :class:`Want`.
    None: no point was given, or the changelog no longer reaches back to it.
    ``recorded``: what the store has at the point ``judged``. None: no point was given, the changelog no longer reaches
    back to it, its rows contradict each other, or a relay answers, which has only what publishers sent.
    """

    topics: Mapping[str, TopicSnapshot]
    head: Point
    contains_known: bool | None = None
    recorded: Recorded | None = None


class AnswerAge(msgspec.Struct, frozen=True):
    """How old one chain's part of a relay's answer is (rule R1), in seconds of the relay's own clock.

    The relay knows two ends of the moment at which the store's head was a point that it has. ``age``: from the earliest
    such moment to the arrival of the question; below 0: the moment is after it; infinite: no such moment is known.
    ``least``: from the latest such moment to the sending of the answer. ``applied``: from the moment at which the relay
    had the first link of a delta to the arrival of the question; infinite: not known.
    """

    age: float
    least: float
    applied: float = float("inf")


class SyncAnswer(msgspec.Struct, frozen=True):
    """Answer to a mapping of chain -> :class:`Want`, read in one read-only snapshot of the primary, or of a relay.

    ``ages``: by chain, from a relay; a missing chain's age is not known. None: the primary answered, whose age is 0. A
    relay leaves out chains that it does not have now. ``asked_after``: seconds from the begin of the question until the
    server that answered was asked, because others were asked before; it is the asking side's, and is not sent.
    """

    store: Point
    chains: Mapping[str, Delta | Incomplete | Full]
    store_id: bytes = NO_STORE
    ages: Mapping[str, AnswerAge] | None = None
    asked_after: float = 0.0
