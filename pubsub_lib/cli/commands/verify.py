"""``pubsub-db verify``."""

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Final

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.formatting import hexadecimal
from pubsub_lib.cli.output import List
from pubsub_lib.cli.prompts import check_names
from pubsub_lib.cli.replica_client import Fingerprints, ReplicaAnswer, ReplicaClient
from pubsub_lib.command import exit_codes
from pubsub_lib.core import digest
from pubsub_lib.core.model import EMPTY, Full, Head, Point, Want
from pubsub_lib.errors import NotFound, WaitTimeout
from pubsub_lib.store import Store
from pubsub_lib.store.inspection import Verified

COLUMNS: Final = ("check", "store", "found", "right")
WAIT: Final = 10.0
"""Seconds for a replica to hold something that can be compared."""
PAUSE: Final = 0.25
MAX_NAMED: Final = 100
"""Objects that differ and are named; more are counted."""

Row = tuple[str, str, str, bool]


class Verify(List):
    """Count a topic anew from its rows, and compare with its head; and with what a running replica holds.

    1 when anything differs; each object that differs is named.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """What to verify, against whom."""
        parser = super().get_parser(prog_name)
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--against", metavar="URL", help="of a replica's endpoint (replica_metrics_port)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Row]]:
        """Raises NotFound (no such topic), TransportError, NotSubscribedError, WaitTimeout, StoreError."""
        check_names(parsed_args)
        topic = parsed_args.topic
        replica = None if parsed_args.against is None else ReplicaClient(parsed_args.against)
        with reading(self) as store:
            verified = store.inspect.verify(topic)
            if verified.stored == EMPTY == verified.counted and replica is None:
                raise NotFound(f"nothing was ever written to the topic {topic!r}; see pubsub-db topics")
            rows = rows_of(verified)
            if replica is not None:
                rows += against(store, topic, replica)
        if not all(right for *_, right in rows):
            self.exit_code = exit_codes.NOT_SO
        return COLUMNS, rows


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
        rows.append(_row("rows: more that differ", 0, verified.damages - len(verified.damaged)))
    return rows


def against(store: Store, topic: str, replica: ReplicaClient, wait: float = WAIT) -> list[Row]:
    """The store against a replica, at the point that the replica knows: writers may go on.

    Raises WaitTimeout when the replica holds nothing that can be compared.
    """
    told, expected = _comparable(store, topic, replica, wait)
    rows = [
        _row(f"replica: objects at {expected.point.position}", expected.count, told.objects),
        _row(f"replica: digest at {expected.point.position}", hexadecimal(expected.digest), hexadecimal(told.digest)),
    ]
    if not all(row[3] for row in rows):
        rows += _named(store, topic, replica, wait)
    return rows


def _comparable(store: Store, topic: str, replica: ReplicaClient, wait: float) -> tuple[ReplicaAnswer, Head]:
    """What the replica holds, and the topic's head at that point, by the changelog."""
    until = time.monotonic() + wait
    while True:
        told = replica.contents(topic)
        expected = None if told.known is None else store.inspect.head_at(topic, told.known.position)
        # At the head's own position the replica's point must be the head's: else it is of another history.
        if told.known is not None and expected is not None and not _other_history(told.known, expected):
            return told, expected
        if time.monotonic() >= until:
            raise WaitTimeout(f"the replica at {replica.url} cannot be compared: {_why(told, expected)}; try again")
        time.sleep(PAUSE)


def _other_history(known: Point, expected: Head) -> bool:
    return known.position == expected.point.position and known != expected.point


def _why(told: ReplicaAnswer, expected: Head | None) -> str:
    if told.known is None:
        return f"it holds nothing yet (it is {told.state})"
    if expected is None:
        return f"it stands at position {told.known.position}, which the changelog does not reach any more"
    return f"at position {told.known.position} it follows another history (the store was restored), and did not notice"


def _named(store: Store, topic: str, replica: ReplicaClient, wait: float) -> list[Row]:
    """The objects that differ. That needs both sides at the same point; a topic that is written to all the time may
    not stand still long enough."""
    until = time.monotonic() + wait
    while time.monotonic() < until:
        told = replica.contents(topic)
        answer = store.read_sync({topic: Want(buckets=told.buckets)}).chains[topic]
        assert isinstance(answer, Full), "buckets were asked for"
        snapshot = answer.topics[topic]
        differing = snapshot.buckets or frozenset()
        if told.known is not None and told.known.position >= snapshot.head.point.position and differing:
            known, theirs = replica.objects(topic, differing)
            if known == told.known:
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
    return [("replica: objects cannot be named while the topic is written to", "", "", False)]


def compared(mine: Fingerprints, theirs: Fingerprints) -> list[Row]:
    """One row for each object that differs, of ``MAX_NAMED`` at most."""
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


