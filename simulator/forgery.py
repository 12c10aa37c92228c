"""Links that were never committed, made so that a replica applies them."""

import random
from collections.abc import Mapping
from typing import Final

import msgspec

from pubsub_lib.core.digest import MASK, fingerprint
from pubsub_lib.core.model import Change, Link, Point
from simulator.store import Ident

Objects = Mapping[Ident, tuple[int, bytes]]
"""A topic's objects: version and value."""

INVENTED: Final = ("lport", "invented")
"""An object that no writer writes."""
WRITTEN_AT: Final = 1.7e9


def digest_of(objects: Objects) -> tuple[int, int]:
    """Count and digest of a topic."""
    return len(objects), sum(fingerprint(*ident, *each) for ident, each in objects.items()) & MASK


def forged_link(rng: random.Random, topic: str, objects: Objects, prev: Point, tx_prev: Point) -> Link:
    """A link that connects to these points, with the right count and digest for a replica that has ``objects``. It
    creates, sets or deletes one object.
    """
    position = max(prev.position, tx_prev.position) + rng.choice((1, 1, 2, 1000))
    ident = rng.choice([*objects, INVENTED])
    old = objects.get(ident)
    after = dict(objects)
    if old is not None and rng.random() < 0.3:
        del after[ident]
        change = Change(*ident, "delete", position, None)
    else:
        value = msgspec.json.encode({"lie": rng.getrandbits(30)})
        after[ident] = position, value
        change = Change(*ident, "create" if old is None else "set", position, value)
    point = Point(position, rng.getrandbits(63))
    return Link(topic, prev, point, [change], *digest_of(after), tx_prev, 1, "", WRITTEN_AT)


def with_false_digest(rng: random.Random, link: Link) -> Link:
    """The same link with another digest."""
    return msgspec.structs.replace(link, digest=(link.digest + rng.randrange(1, 1000)) & MASK)
