"""The payload: objects of 256-byte values and the transactions that change them, from a seed."""

import random
from collections.abc import Mapping, Sequence

import msgspec

from pubsub_lib.core import digest
from pubsub_lib.core.model import ZERO, Change, Full, Head, Link, Point, Record, TopicSnapshot

TABLE = "lport"
VALUE_BYTES = 256
"""Bytes of each value in all cases except the full sync. The peers send exactly these bytes, without key and version.
"""
DIGITS = VALUE_BYTES - len('{"data":""}')


def value(number: int) -> bytes:
    """Canonical JSON of ``VALUE_BYTES`` bytes; different for every number."""
    return b'{"data":"%0*d"}' % (DIGITS, number)


def key(topic: str, number: int) -> str:
    """The key of an object."""
    return f"{topic}-{number:06d}"


class Plan(msgspec.Struct, frozen=True):
    """A topic with its objects before the first transaction, and the transactions' links in order."""

    topic: str
    start: TopicSnapshot
    links: Sequence[Link]

    @property
    def changes(self) -> int:
        """The number of changes of all links."""
        return sum(len(link.changes) for link in self.links)

    @property
    def end(self) -> Head:
        """The topic's head after the last link."""
        last = self.links[-1]
        return Head(last.point, last.count, last.digest)

    def full(self) -> Full:
        """The objects before the first link, as a store's answer."""
        return Full({self.topic: self.start}, self.start.head.point)

    def expected(self) -> Mapping[tuple[str, str], tuple[int, bytes]]:
        """The expected final contents of a replica: (table, key) -> (version, value), without using the library."""
        state = {(each.table, each.key): (each.version, each.value) for each in self.start.records}
        for link in self.links:
            for change in link.changes:
                assert change.value is not None
                state[change.table, change.key] = (change.version, change.value)
        return state


def plan(topic: str, keys: int, transactions: int, changes: int, seed: int) -> Plan:
    """``keys`` objects on one topic, then ``transactions`` that each set ``changes`` of them, chosen at random."""
    rng = random.Random(seed)
    records = [Record(TABLE, key(topic, number), number + 1, value(number)) for number in range(keys)]
    prints = [digest.fingerprint(each.table, each.key, each.version, each.value) for each in records]
    total = sum(prints) & digest.MASK
    point = Point(keys, rng.getrandbits(62)) if keys else ZERO
    start = TopicSnapshot(Head(point, keys, total), records)
    links = []
    version = keys
    for _ in range(transactions):
        made = []
        for chosen in rng.sample(range(keys), changes):
            version += 1
            new = value(version)
            its_key = key(topic, chosen)  # a new string object, as in a writer
            print_ = digest.fingerprint(TABLE, its_key, version, new)
            total = digest.add(digest.subtract(total, prints[chosen]), print_)
            prints[chosen] = print_
            made.append(Change(TABLE, its_key, "set", version, new))
        previous, point = point, Point(version, rng.getrandbits(62))
        links.append(Link(topic, previous, point, made, keys, total, previous, 1, "bench"))
    return Plan(topic, start, links)
