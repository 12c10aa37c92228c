"""A small model of the SQL store (rules S1 to S3): the same answers without SQL.

``tests/simulator/test_model_store.py`` checks it against the real store on all three databases: the same verbs give
the same links, heads and answers up to nonces and times.
"""

import copy
import random
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

import msgspec

from pubsub_lib.core.digest import MASK, bucket_of, fingerprint
from pubsub_lib.core.model import (
    ALL,
    DEFAULT_TOPIC,
    EMPTY,
    ZERO,
    Action,
    Change,
    Delta,
    Full,
    Head,
    Heads,
    Incomplete,
    Link,
    Point,
    Record,
    Recorded,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.errors import AlreadyExists, NotFound, VersionMismatch
from simulator.judged_point import recorded

Ident = tuple[str, str]
STORE_ID = bytes(range(16))
"""The id of every simulated store, except a copy with a new one."""


class Verb(msgspec.Struct, frozen=True):
    """One recorded verb. ``update`` merges JSON members; ``topic`` None keeps the object's."""

    kind: str
    table: str
    key: str
    value: bytes | None = None
    topic: str | None = None
    version: int | None = None
    missing_ok: bool = False


class Stored(msgspec.Struct, frozen=True):
    """One object."""

    topic: str
    version: int
    value: bytes


class Commit(msgspec.Struct, frozen=True):
    """A transaction that changed something."""

    point: Point
    links: Sequence[Link]


class State(msgspec.Struct):
    """Everything that a backup holds."""

    point: Point = ZERO
    objects: dict[Ident, Stored] = {}
    heads: dict[str, Head] = {}
    links: list[Link] = []
    leases: dict[str, tuple[str, float]] = {}


class ModelStore:
    """Objects, heads and changelog of one history at a time. ``rng`` makes the nonces."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.store_id = STORE_ID
        self.state = State()

    # -- writing ---------------------------------------------------------------------------------------------------

    def new_nonce(self) -> int:
        """A transaction's random nonce."""
        return self._rng.getrandbits(63)

    def commit(self, verbs: Sequence[Verb], origin: str, written_at: float, nonce: int | None = None) -> Commit | None:
        """Carry out a transaction; None when it changes nothing. Raises ConditionFailed, and writes nothing."""
        after: dict[Ident, tuple[str, bytes] | None] = {}
        for verb in verbs:
            self._carry_out(verb, after)
        return self._write(after, origin, written_at, self.new_nonce() if nonce is None else nonce)

    def _carry_out(self, verb: Verb, after: dict[Ident, tuple[str, bytes] | None]) -> None:
        ident = verb.table, verb.key
        stored = self.state.objects.get(ident)
        current = after.get(ident, None if stored is None else (stored.topic, stored.value))
        if verb.version is not None and verb.version != (0 if stored is None else stored.version):
            if stored is None and verb.kind in ("update", "delete"):
                raise NotFound(f"{ident} not found")
            raise VersionMismatch(f"{ident} is not at version {verb.version}")
        if verb.kind == "delete":
            if current is None and not verb.missing_ok:
                raise NotFound(f"{ident} not found")
            after[ident] = None
            return
        if verb.value is None:
            raise ValueError(f"a {verb.kind} needs a value")
        if verb.kind == "create" and current is not None:
            raise AlreadyExists(f"{ident} exists already")
        value = verb.value
        if verb.kind == "update":
            if current is None:
                raise NotFound(f"{ident} not found")
            merged = {**msgspec.json.decode(current[1]), **msgspec.json.decode(value)}
            value = msgspec.json.encode(merged, order="sorted")
        after[ident] = verb.topic or (current[0] if current is not None else DEFAULT_TOPIC), value

    def _write(
        self, after: Mapping[Ident, tuple[str, bytes] | None], origin: str, written_at: float, nonce: int
    ) -> Commit | None:
        state = self.state
        previous, position = state.point, state.point.position
        changes: dict[str, list[Change]] = {}
        totals: dict[str, tuple[int, int]] = {}

        def change(topic: str, ident: Ident, action: Action, value: bytes | None, *, old: Stored | None) -> int:
            nonlocal position
            position += 1
            changes.setdefault(topic, []).append(Change(*ident, action, position, value))
            count, total = totals.get(topic) or (self.head(topic).count, self.head(topic).digest)
            if old is not None:
                count, total = count - 1, total - fingerprint(*ident, old.version, old.value)
            if value is not None:
                count, total = count + 1, total + fingerprint(*ident, position, value)
            totals[topic] = count, total & MASK
            return position

        for ident, now in after.items():
            old = state.objects.get(ident)
            if now is None:
                if old is not None:
                    change(old.topic, ident, "delete", None, old=old)
                    del state.objects[ident]
                continue
            topic, value = now
            if old is not None and (old.topic, old.value) == now:
                continue
            if old is not None and self._moves(old, topic):
                change(old.topic, ident, "delete", None, old=old)
                old = None
            version = change(topic, ident, "create" if old is None else "set", value, old=old)
            state.objects[ident] = Stored(topic, version, value)
        if not changes:
            return None
        point = Point(position, nonce)
        links = [
            Link(
                topic,
                self.head(topic).point,
                point,
                part,
                *totals[topic],
                previous,
                len(changes),
                origin,
                written_at,
            )
            for topic, part in changes.items()
        ]
        for link in links:
            state.heads[link.topic] = Head(point, link.count, link.digest)
        state.links.extend(links)
        state.point = point
        return Commit(point, links)

    def rewrite(self, links: Sequence[Link]) -> Commit | None:
        """A transaction that changes the same objects as an undone one, to other values: with the same positions, if
        the store is as it was before the undone one.
        """
        after: dict[Ident, tuple[str, bytes] | None] = {}
        changes = [(change.version, link.topic, change) for link in links for change in link.changes]
        for _, topic, change in sorted(changes, key=lambda each: each[0]):
            ident = change.table, change.key
            after[ident] = None if change.value is None else (topic, _other(change.value))
        return self._write(after, links[0].origin, links[0].written_at, self.new_nonce())

    def _moves(self, old: Stored, topic: str) -> bool:
        """True when an object leaves its topic: a delete there and a create in the new one."""
        return old.topic != topic

    # -- reading ---------------------------------------------------------------------------------------------------

    def head(self, topic: str) -> Head:
        """A topic's head."""
        return self.state.heads.get(topic, EMPTY)

    def committed(self, nonce: int, since: Point) -> bool | None:
        """Whether the transaction with this nonce, tried after ``since``, was committed; None: unknown, because the
        changelog was trimmed beyond ``since``."""
        if nonce == self.state.point.nonce or any(head.point.nonce == nonce for head in self.state.heads.values()):
            return True
        if any(link.point.nonce == nonce for link in self.state.links):
            return True
        oldest = self.state.links[0].tx_prev if self.state.links else self.state.point
        return None if oldest.position > since.position else False

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The store's point and the heads of these topics; ``ALL`` among them: of all topics."""
        names = [*self.state.heads] if ALL in topics else []
        names += [topic for topic in topics if topic not in (ALL, *names)]
        heads = {topic: self.head(topic) for topic in names}
        return Heads(self.state.point, heads, self.store_id, everything=ALL in topics)

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """Answer each chain's want from the same moment."""
        chains = {chain: self._answer(chain, want) for chain, want in wants.items()}
        return SyncAnswer(self.state.point, chains, self.store_id)

    def _answer(self, chain: str, want: Want) -> Delta | Incomplete | Full:
        if want.after is not None:
            return self._delta(chain, want.after)
        names = [*self.state.heads] if chain == ALL else [chain]
        contains = None if want.known is None else self._holds(chain, want.known)
        topics = {topic: self.snapshot(topic, want.buckets) for topic in names}
        return Full(topics, self._chain_head(chain), contains, want.judged and self._recorded(*want.judged))

    def _recorded(self, topic: str, point: Point) -> Recorded | None:
        held = self._holds(topic, point, None if topic in self.state.heads else self.state.point)
        return recorded(topic, point, held, self.head(topic), self.state.links)

    def _links_after(self, position: int) -> list[Link]:
        return self.state.links[bisect_right(self.state.links, position, key=_position) :]

    def _chain_head(self, chain: str) -> Point:
        return self.state.point if chain == ALL else self.head(chain).point

    def _delta(self, chain: str, after: Point) -> Delta | Incomplete:
        links = [link for link in self._links_after(after.position) if chain in (ALL, link.topic)]
        head = self._chain_head(chain)
        first = (links[0].tx_prev if chain == ALL else links[0].prev) if links else head
        heads = dict(self.state.heads) if chain == ALL else {chain: self.head(chain)}
        return Delta(links, head, heads) if first == after else Incomplete()

    def snapshot(self, topic: str, buckets: Mapping[int, int] | None = None) -> TopicSnapshot:
        """A topic's objects; with the replica's bucket digests, those of the buckets that differ."""
        mine = [Record(*ident, at.version, at.value) for ident, at in self.state.objects.items() if at.topic == topic]
        if buckets is None:
            return TopicSnapshot(self.head(topic), mine)
        sums: dict[int, int] = {}
        for record in mine:
            bucket = bucket_of(record.table, record.key)
            sums[bucket] = (sums.get(bucket, 0) + fingerprint(*msgspec.structs.astuple(record))) & MASK
        differ = frozenset(b for b in {**sums, **buckets} if sums.get(b) != buckets.get(b))
        return TopicSnapshot(
            self.head(topic),
            [record for record in mine if bucket_of(record.table, record.key) in differ],
            differ,
        )

    def read_links(self, after: Point | None, maximum: int) -> tuple[list[Link], Point, bool]:
        """Links after a point in commit order, at most ``maximum`` or one whole transaction; the head; whether the
        links join the point (None: from the oldest kept)."""
        links = self._links_after(-1 if after is None else after.position)
        head = self.state.point
        complete = after is None or (links[0].tx_prev if links else head) == after
        if not complete:
            return [], head, False
        cut = maximum
        while 0 < cut < len(links) and links[cut].point == links[cut - 1].point:
            cut += 1
        return links[:cut], head, True

    def holds(self, topic: str, points: Sequence[Point]) -> list[bool | None]:
        """For each point whether it lies in the history of a topic (``ALL``: of the store); None: unknown."""
        return [self._holds(topic, point) for point in points]

    def _holds(self, topic: str, point: Point, head: Point | None = None) -> bool | None:
        head = head or self._chain_head(topic)
        if point in (head, ZERO):
            return True
        if point.position >= head.position:
            return False
        links = self.state.links
        here = [link for link in links if link.point.position == point.position and topic in (ALL, link.topic)]
        if here:
            return here[0].point == point
        return False if links and links[0].tx_prev.position < point.position else None

    def trim(self, keep_links: int) -> int:
        """Remove the oldest transactions, so that at least ``keep_links`` links stay; returns the number of removed
        links."""
        links = self.state.links
        surplus = max(len(links) - keep_links, 0)
        while 0 < surplus < len(links) and not self._may_cut(links, surplus):
            surplus -= 1
        del links[:surplus]
        return surplus

    def _may_cut(self, links: Sequence[Link], at: int) -> bool:
        """True between two transactions: a part of one would look complete in a delta of everything."""
        return links[at].point != links[at - 1].point

    # -- leases and backups ----------------------------------------------------------------------------------------

    def acquire(self, name: str, holder: str, seconds: float, now: float) -> bool:
        """Take or renew a lease, at the database's time ``now``."""
        held = self.state.leases.get(name)
        if held is not None and held[0] != holder and held[1] > now:
            return False
        self.state.leases[name] = holder, now + seconds
        return True

    def live(self, prefix: str, now: float) -> list[str]:
        """Names with this prefix, without it, whose lease has not ended."""
        return [
            name.removeprefix(prefix)
            for name, (_, until) in self.state.leases.items()
            if name.startswith(prefix) and until > now
        ]

    def collect_garbage(self, now: float) -> int:
        """Remove leases that ended; returns how many."""
        ended = [name for name, (_, until) in self.state.leases.items() if until <= now]
        for name in ended:
            del self.state.leases[name]
        return len(ended)

    def backup(self) -> State:
        """A copy of everything."""
        state = self.state
        return State(state.point, dict(state.objects), dict(state.heads), list(state.links), dict(state.leases))

    def restore(self, backup: State) -> None:
        """Restore a copy: all later commits are undone."""
        self.state = copy.copy(
            State(
                backup.point,
                dict(backup.objects),
                dict(backup.heads),
                list(backup.links),
                dict(backup.leases),
            )
        )


def _other(value: bytes) -> bytes:
    """Another value, of the same length."""
    return value.replace(b'"fill":"x', b'"fill":"y', 1)


def _position(link: Link) -> int:
    return link.point.position
