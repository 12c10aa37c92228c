"""``pubsub-db verify``."""

import argparse
import time
from collections.abc import Iterable
from typing import Final

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.formatting import hexadecimal
from pubsub_lib.cli.output import List
from pubsub_lib.cli.prompts import check_names
from pubsub_lib.cli.replica_client import Fingerprints, ReplicaAnswer, ReplicaClient
from pubsub_lib.command import exit_codes
from pubsub_lib.core import digest
from pubsub_lib.core.model import ALL, EMPTY, Full, Head, Point, Want
from pubsub_lib.errors import NotFound, WaitTimeout
from pubsub_lib.store import Store
from pubsub_lib.store.inspection import Verified

WAIT: Final = 10.0
"""Maximum number of seconds to wait until a replica's contents can be compared."""
PAUSE: Final = 0.25
MAX_NAMED: Final = 100
"""Maximum number of different objects that are named; more are counted."""

Row = tuple[str, str, str, bool]


class Verify(List):
    """Compare the rows of a topic with its head, and with the contents of a running replica.

    The exit code is 1 when anything differs; each object that differs is named.
    """

    example = "verify tenant-1 --against 127.0.0.1:8868"
    columns = ("check", "store", "found", "right")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The topic and the replica."""
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--against", metavar="URL", help="the URL of a replica's endpoint (replica_metrics_port)")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Row]:
        """Raises NotFound (no such topic), TransportError, NotSubscribedError, WaitTimeout, StoreError."""
        check_names(parsed_args)
        topic = parsed_args.topic
        replica = None if parsed_args.against is None else ReplicaClient(parsed_args.against)
        with reading(self) as store:
            verified = store.inspect.verify(topic)
            never = verified.stored == EMPTY == verified.counted
            if never and (replica is None or not replica.contents(topic).objects):
                raise NotFound(f"nothing was ever written to the topic {topic!r}; see pubsub-db topics")
            rows = rows_of(verified)
            if replica is not None:
                rows += against(store, topic, replica)
        if not all(right for *_, right in rows):
            self.exit_code = exit_codes.NEGATIVE
        return rows


def rows_of(verified: Verified) -> list[Row]:
    """The store against itself."""
    stored, counted = verified.stored, verified.counted
    rows = [
        _row("rows: objects", stored.count, counted.count),
        _row("rows: digest", hexadecimal(stored.digest), hexadecimal(counted.digest)),
    ]
    for each in verified.damaged:
        real = digest.fingerprint(each.table, each.key, each.version, each.value)
        name = f"rows: {each.table} {each.key} in version {each.version}"
        complaint = verified.complaints.get(each.ident)
        if complaint is not None:
            rows.append((name, "", complaint, False))
        if complaint is None or real != each.fingerprint:
            rows.append(_row(name, hexadecimal(each.fingerprint), hexadecimal(real)))
    if verified.damages > len(verified.damaged):
        rows.append(_row("rows: more differences", 0, verified.damages - len(verified.damaged)))
    return rows


def against(store: Store, topic: str, replica: ReplicaClient, wait: float = WAIT) -> list[Row]:
    """The store against a replica, at the replica's point: writers may continue.

    Raises WaitTimeout when the replica's contents cannot be compared in time.
    """
    answer, expected = _comparable(store, topic, replica, wait)
    if isinstance(expected, Point):
        return [(f"replica: point at {expected.position}", "not in its history", hexadecimal(expected.nonce), False)]
    rows = [
        _row(f"replica: objects at {expected.point.position}", expected.count, answer.objects),
        _row(f"replica: digest at {expected.point.position}", hexadecimal(expected.digest), hexadecimal(answer.digest)),
    ]
    if not all(row[3] for row in rows):
        rows += _named(store, topic, replica, wait)
    return rows


def _comparable(store: Store, topic: str, replica: ReplicaClient, wait: float) -> tuple[ReplicaAnswer, Head | Point]:
    """The replica's contents, and the topic's head at the replica's point, by the changelog; or that point, when the
    store's history does not contain it. A replica undoes a restore by itself, so this is a fault only after ``wait``.
    """
    until = time.monotonic() + wait
    while True:
        answer = replica.contents(topic)
        known = answer.known
        # The store is read later, so it has every point that a publisher sends after its commit.
        foreign = known is not None and store.holds(ALL, [known]) == [False]
        expected = None if known is None or foreign else store.inspect.head_at(topic, known.position)
        if expected is not None and known is not None:
            foreign = known.position == expected.point.position and known != expected.point  # the changelog is trimmed
            if not foreign:
                return answer, expected
        if time.monotonic() >= until:
            if foreign and known is not None:
                return answer, known
            raise WaitTimeout(f"the replica at {replica.url} cannot be compared: {_why(answer)}; try again")
        time.sleep(PAUSE)


def _why(answer: ReplicaAnswer) -> str:
    if answer.known is None:
        return f"it has no data yet (its state is {answer.state})"
    return f"it is at position {answer.known.position}, which the changelog has trimmed"


def _named(store: Store, topic: str, replica: ReplicaClient, wait: float) -> list[Row]:
    """The objects that differ. This needs store and replica at the same point, which may not happen within ``wait``
    for a topic that is written continuously."""
    until = time.monotonic() + wait
    while time.monotonic() < until:
        answer = replica.contents(topic)
        chain = store.read_sync({topic: Want(buckets=answer.buckets)}).chains[topic]
        assert isinstance(chain, Full), "a request with buckets gives a full chain"
        snapshot = chain.topics[topic]
        differing = snapshot.buckets or frozenset()
        if answer.known is not None and answer.known.position >= snapshot.head.point.position and differing:
            known, theirs = replica.objects(topic, differing)
            if known == answer.known:
                mine = {
                    (each.table, each.key): (
                        each.version, digest.fingerprint(each.table, each.key, each.version, each.value),
                    )
                    for each in snapshot.records
                }  # fmt: skip
                return compared(mine, theirs)
        if not differing:
            return [("replica: repaired meanwhile", "", "", True)]
        time.sleep(PAUSE)
    return [("replica: objects cannot be named while the topic is written", "", "", False)]


def compared(mine: Fingerprints, theirs: Fingerprints) -> list[Row]:
    """One row for each object that differs, for at most ``MAX_NAMED`` objects."""
    rows = []
    for table, key in sorted(mine.keys() | theirs.keys()):
        here, there = mine.get((table, key)), theirs.get((table, key))
        if here != there:
            rows.append((f"replica: {table} {key}", _shown(here, there), _shown(there, here), False))
    if len(rows) > MAX_NAMED:
        more = len(rows) - MAX_NAMED
        rows = [*rows[:MAX_NAMED], (f"replica: {more} more objects", "", "", False)]
    return rows


def _shown(this: tuple[int, int] | None, other: tuple[int, int] | None) -> str:
    if this is None:
        return "missing"
    same = other is not None and other[0] == this[0]
    return f"version {this[0]}, value {hexadecimal(this[1])}" if same else f"version {this[0]}"


def _row(check: str, store: object, found: object) -> Row:
    return check, str(store), str(found), store == found
