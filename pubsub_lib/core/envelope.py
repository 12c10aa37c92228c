"""Envelopes of links, and hellos, as frozen data. :mod:`.codec` defines their byte form."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from pubsub_lib.core.limits import MAX_HELLO_TOPICS
from pubsub_lib.core.model import MAX_NUMBER, MAX_SECONDS, NO_STORE, Change, Head, Link, Name, Part, Point, Position

Uuid = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
MAX_PATH: Final = 16
"""Maximum number of UUIDs in the path of a relay's hello."""
MAX_INSTEAD: Final = 16
"""Maximum number of addresses in the goodbye of a relay."""
MAX_ADDRESS: Final = 255
"""Maximum number of characters of one of them."""
Address = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ADDRESS)]
PLAIN_FIELDS: Final = 6
"""Number of the fields that the hellos of all publishers have."""
RELAY_FIELDS: Final = 8
"""Number of the fields of a relay's hello that is not a goodbye with addresses."""
DRAIN_FIELDS: Final = 9
"""Number of the fields of a goodbye with addresses."""
MAX_PORT: Final = 65535
ServedPort = Annotated[int, msgspec.Meta(ge=0, le=MAX_PORT)]


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One link, or one part of a large link's run of messages.

    The parts of a run repeat everything of the link but its changes, and are numbered 1..``parts``. A run is used only
    when all its parts were received.
    """

    link: Link
    part: Part = 1
    parts: Part = 1


class Packed(list[Message]):
    """Messages with their encoded bytes. The maker needed the bytes anyway; so the messages are encoded only once.

    Equal to any list of the same messages. Must not be changed.
    """

    __slots__ = ("encoded",)

    def __init__(self, messages: Iterable[Message], encoded: bytes) -> None:
        super().__init__(messages)
        self.encoded = encoded
        """The bytes that :func:`pubsub_lib.core.codec.encode` would put into the body for them, concatenated."""


class Hello(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A publisher's message without changes. A broadcast hello covers the topics on which the publisher sent last, a
    hello reply those of its hello request.

    ``sequences``: per topic the last sequence that this publisher sent (0 = none yet).
    ``heads``: per topic the head as last read from the store; ``store``: the store's point in the same reading
    (None: the store was never read). ``age``: seconds between the begin of that reading and the sending of this.
    ``nonce``: that of the hello request in a *hello reply*; "" when broadcast.
    ``goodbye``: the publisher stops after this.

    Of a relay only (rule R1): ``least_age``: seconds between the latest moment at which the heads may have been
    read and the sending of this; 0: that may be the sending itself. ``path``: the UUIDs of the publishers above the
    relay, nearest first. ``instead``: in a goodbye, the addresses of relays to which the replicas below may go.

    ``serves``: the port of the publisher's sync channel (HTTP) at its own host, 0: none. It is no host and no URL, so a
    hello cannot lead a replica to another host.
    """

    sequences: Mapping[Name, Position]
    heads: Mapping[Name, Head]
    store: Point | None
    age: float
    nonce: str = ""
    goodbye: bool = False
    least_age: float = 0.0
    path: tuple[Uuid, ...] = ()
    instead: tuple[Address, ...] = ()
    serves: ServedPort = 0

    def fields(self) -> Sequence[object]:
        """What is sent: without the last fields, which only some hellos need."""
        number = PLAIN_FIELDS
        if self.path or self.least_age:
            number = RELAY_FIELDS
        if self.instead:
            number = DRAIN_FIELDS
        return msgspec.structs.astuple(self)[: None if self.serves else number]

    def complaint(self) -> str | None:
        """The inconsistency in it, or None."""
        if max(len(self.sequences), len(self.heads)) > MAX_HELLO_TOPICS:
            return f"it is a hello about more than {MAX_HELLO_TOPICS} topics"
        if not 0 <= self.age <= MAX_SECONDS:  # nor NaN
            return f"its reading is {self.age} s old"
        if not 0 <= self.least_age <= self.age:
            return f"its reading is at least {self.least_age} s and at most {self.age} s old"
        if len(self.path) > MAX_PATH:
            return f"it is a hello through more than {MAX_PATH} publishers"
        if len(self.instead) > MAX_INSTEAD:
            return f"it is a goodbye that names more than {MAX_INSTEAD} addresses"
        if not 0 <= self.serves <= MAX_PORT:
            return f"it is a hello that names the port {self.serves}"
        if not all(0 <= value <= MAX_NUMBER for value in self.sequences.values()):
            return f"it counts a topic's sequence below 0 or above {MAX_NUMBER}"
        return None


OBSERVER: Final = "observer-"
"""Nonces begin with it when a program asks that applies nothing and keeps no journal, such as ``pubsub-db status``."""


class HelloRequest(msgspec.Struct, frozen=True):
    """A subscriber's request to every publisher for the heads of these topics, with replies to ``nonce`` alone.

    ``topics`` may hold ``ALL`` ("") for the store's own head.
    """

    nonce: str
    topics: tuple[str, ...]


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The unit that a driver sends: consecutive messages of one publisher on one topic, or one hello.

    ``service`` is the publisher's stable name, ``uuid`` its identity since its last start (32 hex digits),
    ``topic`` the topic of every link in ``messages`` (``ALL`` for a hello).
    ``sequence`` numbers the first of ``messages``, the next has one more; it counts per (uuid, topic) from 1.
    A hello has no sequence of its own: ``sequence`` is 0 and ``messages`` is empty.
    ``store_id`` is the id of the store that the publisher publishes (``NO_STORE``: a version without the field).
    """

    service: str
    uuid: str
    topic: str
    sequence: int
    messages: Sequence[Message]
    hello: Hello | None = None
    store_id: bytes = NO_STORE


def merge(run: Sequence[Message]) -> Link:
    """The link of a complete run: its parts 1..n in order. The inverse of :func:`.codec.split`."""
    first = run[0].link
    if len(run) == 1:
        return first
    return part_of(first, [change for message in run for change in message.link.changes], run[-1].link.trace)


def part_of(link: Link, changes: list[Change], trace: str = "") -> Link:
    """The link with these changes and this trace context."""
    # Written out: msgspec.structs.replace() is several times slower, and mypy would not detect a forgotten field.
    return Link(
        topic=link.topic,
        prev=link.prev,
        point=link.point,
        changes=changes,
        count=link.count,
        digest=link.digest,
        tx_prev=link.tx_prev,
        tx_links=link.tx_links,
        origin=link.origin,
        written_at=link.written_at,
        trace=trace,
    )
