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


def next_objects(objects: Objects, link: Link) -> dict[Ident, tuple[int, bytes]]:
    """A topic's objects after a link."""
    after = dict(objects)
    for change in link.changes:
        if change.value is None:
            after.pop((change.table, change.key), None)
        else:
            after[change.table, change.key] = change.version, change.value
    return after


def forged_link(rng: random.Random, topic: str, objects: Objects, prev: Point, tx_prev: Point) -> Link:
    """A link that connects to these points, with the right count and digest for a replica that has ``objects``. It
    creates, sets or deletes one object.
    """
    position = max(prev.position, tx_prev.position) + rng.choice((1, 1, 2, 1000))
    ident = rng.choice([*objects, INVENTED])
    if ident in objects and rng.random() < 0.3:
        change = Change(*ident, "delete", position, None)
    else:
        value = msgspec.json.encode({"lie": rng.getrandbits(30)})
        change = Change(*ident, "set" if ident in objects else "create", position, value)
    link = Link(topic, prev, Point(position, rng.getrandbits(63)), [change], 0, 0, tx_prev, 1, "", WRITTEN_AT)
    return with_digest(link, objects)


def altered_link(rng: random.Random, link: Link, objects: Objects) -> Link | None:
    """A true link with another value of one object, and the digest that fits. None: it sets no object."""
    changes = list(link.changes)
    at = next((number for number, change in enumerate(changes) if change.value is not None), None)
    if at is None:
        return None
    changes[at] = msgspec.structs.replace(changes[at], value=msgspec.json.encode({"lie": rng.getrandbits(30)}))
    return with_digest(msgspec.structs.replace(link, changes=changes), objects)


def with_digest(link: Link, objects: Objects) -> Link:
    """The same link with the count and digest of a replica that has ``objects`` and applies it."""
    count, digest = digest_of(next_objects(objects, link))
    return msgspec.structs.replace(link, count=count, digest=digest)


def with_false_digest(rng: random.Random, link: Link) -> Link:
    """The same link with another digest."""
    return msgspec.structs.replace(link, digest=(link.digest + rng.randrange(1, 1000)) & MASK)
