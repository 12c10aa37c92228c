"""Journals of a tree of relays: an origin, relays, and replicas below them. Faults are planted by hand or at random.

Times are in microseconds, and small, as those of :mod:`tests.unit.audit.generator`.
"""

import random
from collections import defaultdict
from typing import Any

from pubsub_lib.journal.rows import ChangeRow, Row, Side
from tests.unit.audit.generator import BEGIN, Participant

STEP = 500
WAY = 5
"""From the sending to the receipt."""
REPAIR = 100
"""From a missed message to the sync that repairs it."""
TOPIC = "t"


class Node:
    """A relay, or a replica (which sends nothing), and its journals since its last start."""

    def __init__(self, name: str, host: str, *, relay: bool) -> None:
        self.name, self.host, self.relay = name, host, relay
        self.parent: Node | None = None
        """None: the origin."""
        self.known = 0
        self.follows = False
        self.uuid = ""
        self.sequence = 0

    @property
    def address(self) -> str:
        return f"tcp://{self.name}"


class Tree:
    """An origin ``s`` with a writer. ``add`` and ``publish`` and so on happen now (``time``), one after the other."""

    def __init__(self, domain: str = "d", skews: dict[str, int] | None = None) -> None:
        self.domain = domain
        self.skews = skews or {}
        self.time = BEGIN + STEP
        self.runs = 0
        self.position = 0
        self.links: list[dict[str, Any]] = []
        self.participants: list[Participant] = []
        self.receiving: dict[Node, Participant] = {}
        self.sending: dict[Node, Participant] = {}
        self.nodes: list[Node] = []
        self.writer = self.begin("writer", "w", "h0")
        self.service = self.begin("service", "s", "h0")
        self.store = Participant("store", "store", "h0", f"{domain}-store", 0, BEGIN + 90_000)
        self.sequence = 0
        self.uuid = f"u-{self.service.run}"
        self.nonces = 0
        self.faults: dict[tuple[str, str], set[int]] = defaultdict(set)
        """(what, node): the positions to which it happens."""

    def begin(self, side: Side, name: str, host: str) -> Participant:
        self.runs += 1
        one = Participant(side, name, host, f"{self.domain}-{self.runs:03d}", self.skews.get(host, 0), self.time)
        self.participants.append(one)
        return one

    # -- the tree ----------------------------------------------------------------------------------------------------

    def add(self, name: str, parent: Node | None = None, *, relay: bool = False, host: str = "") -> Node:
        """A new relay or replica, which listens to ``parent`` (None: the origin) and reads all that there is."""
        node = Node(name, host or f"h-{name}", relay=relay)
        self.nodes.append(node)
        node.parent = parent
        self.start(node)
        return node

    def start(self, node: Node) -> None:
        """Start it: a new run, a full sync."""
        self.time += STEP
        node.known, node.follows = 0, True
        mine = self.receiving[node] = self.begin("replica", node.name, node.host)
        interest: dict[str, Any] = {"kind": "interest", "topic": TOPIC}
        if node.relay:
            self.sending[node] = self.begin("relay", node.name, node.host)
            node.uuid, node.sequence = f"u-{self.sending[node].run}", 0
            interest |= {"cause": "relay", "service": node.name, "uuid": node.uuid}
        if node.parent is not None:
            mine.record(self.time + 1, kind="parent", cause=node.parent.address)
        mine.record(self.time + 2, **interest)
        if node.parent is not None:
            self.name(node, self.time + 3)
        self.ask(node, self.time + 4)
        self.sync(node, self.time + 20, full=True)

    def stop(self, node: Node, *, clean: bool = False) -> None:
        """End it now: in order, or killed."""
        self.time += STEP
        for one in (self.receiving[node], *((self.sending[node],) if node.relay else ())):
            one.end, one.clean = self.time, clean
            if clean:
                one.record(self.time - 1, kind="close")
        node.follows = False

    def restart(self, node: Node) -> None:
        """Start it again; what is below it gets its new UUID."""
        self.start(node)
        for each in self.nodes:
            if each.parent is node and each.follows:
                self.name(each, self.time + 30)

    def move(self, node: Node, parent: Node, *, named: bool = True) -> None:
        """Listen to another parent, and read what is missing; before its first hello, if it is not ``named``."""
        self.time += STEP
        self.receiving[node].record(self.time, kind="parent", cause=parent.address)
        node.parent = parent
        if parent.follows and named:
            self.name(node, self.time + 2)
            if node.known < parent.known:
                self.sync(node, self.time + 20)

    def name(self, node: Node, time: int) -> None:
        parent = node.parent
        assert parent is not None
        who = {"service": parent.name, "uuid": parent.uuid, "cause": parent.address}
        self.receiving[node].record(time, kind="parent", **who)

    def ask(self, node: Node, time: int) -> None:
        """A hello request and its reply: a round trip of 4, answered in the middle."""
        above = self.service if node.parent is None else self.sending[node.parent]
        uuid = self.uuid if node.parent is None else node.parent.uuid
        name = "s" if node.parent is None else node.parent.name
        self.nonces += 1
        nonce = f"n{self.nonces}"
        self.receiving[node].record(time, kind="ask", peer=nonce)
        above.record(time + 2, kind="hello", peer=nonce, uuid=uuid, service=name)
        self.receiving[node].record(time + 4, kind="hello", peer=nonce, uuid=uuid, service=name)

    # -- changes -----------------------------------------------------------------------------------------------------

    def publish(self) -> int:
        """Commit a change and send it down the tree. Returns its position."""
        self.time += STEP
        before, self.position = self.position, self.position + 1
        at, written = self.position, self.time + self.skews.get("h0", 0)
        columns = {
            "kind": "data", "topic": TOPIC, "position": at, "nonce": at, "prev_position": before,
            "prev_nonce": before, "hash": 5000 + at, "part": 1, "parts": 1, "written": written,
            "count": 1, "digest": 7000 + at, "changes": (ChangeRow("t", "k", at, "set", 1000 + at, 9),),
        }  # fmt: skip
        self.links.append(columns)
        self.store.record(BEGIN + 90_001, **columns, outcome="committed", cause="s")
        self.writer.record(self.time + 1, **columns, outcome="handed", cause="s")
        self.service.record(self.time + 2, **columns, outcome="taken", cause="s")
        self.sequence += 1
        sent = {**columns, "service": "s", "uuid": self.uuid, "sequence": self.sequence, "outcome": "sent"}
        self.service.record(self.time + 3, **sent)
        self._spread(None, sent, self.time + 3)
        return at

    def happens(self, what: str, node: Node, position: int) -> bool:
        return position in self.faults[what, node.name]

    def _spread(self, node: Node | None, sent: dict[str, Any], time: int) -> None:
        for each in self.nodes:
            if each.parent is node and each.follows:
                self.receive(each, sent, time + WAY)

    def receive(self, node: Node, sent: dict[str, Any], time: int) -> None:
        """A message arrives: it connects, or waits until a sync has read what is missing."""
        at, mine = sent["position"], self.receiving[node]
        if self.happens("lose", node, at):  # on the way to this node
            return
        if self.happens("ignore", node, at):  # received, and never applied
            mine.record(time, **{**sent, "outcome": "waiting"})
            return
        if self.happens("alter", node, at):
            sent = {**sent, "hash": 1}
        if at <= node.known:
            mine.record(time, **{**sent, "outcome": "old"})
        elif sent["prev_position"] == node.known:
            mine.record(time, **{**sent, "outcome": "applied"})
            node.known = at
            self._pass_on(node, sent, time)
            if self.happens("repeat", node, at):
                mine.record(time + 1, **{**sent, "outcome": "old"})
        else:
            mine.record(time, **{**sent, "outcome": "waiting"})
            if not self.happens("never repair", node, at):
                self.sync(node, time + REPAIR)

    def _pass_on(self, node: Node, link: dict[str, Any], time: int) -> None:
        if not node.relay or self.happens("forget", node, link["position"]):
            return
        node.sequence += 1
        sent = {**link, "service": node.name, "uuid": node.uuid, "sequence": node.sequence, "outcome": "sent"}
        sent.pop("cause", None)
        if self.happens("change", node, link["position"]):
            sent["hash"] = 2
        self.sending[node].record(time + 1, **sent)
        self._spread(node, sent, time + 1)

    def sync(self, node: Node, time: int, *, full: bool = False) -> None:
        """Read what is missing; a delta is passed on."""
        mine, number = self.receiving[node], len(self.receiving[node].events)
        mine.record(time - 5, kind="sync_begin", topic=TOPIC, sequence=number, prev_position=node.known)
        missing = [
            link for link in self.links[node.known : self.position] if not self.happens("claim", node, link["position"])
        ]
        if not full:
            for link in missing:
                mine.record(time, **link, outcome="applied", cause="delta")
        mine.record(
            time, kind="sync_end", topic=TOPIC, sequence=number, outcome="full" if full else "delta",
            position=self.position, nonce=self.position, count=len(missing),
        )  # fmt: skip
        node.known = self.position
        for link in () if full else missing:
            self._pass_on(node, link, time)

    # -- the journals ------------------------------------------------------------------------------------------------

    def rows(self, *, close: bool = True, without: tuple[str, ...] = ()) -> list[Row]:
        """All records, with marks; runs that go on end in order long after the last change. ``without``: the sides and
        names (``relay r1``) of missing journals.
        """
        for each in self.participants:
            each.finish(self.time, close=close)
        self.store.record(BEGIN + 90_003, kind="changelog", prev_position=0, position=self.position)
        there = [each for each in self.participants if f"{each.side} {each.name}" not in without]
        return [row for each in (*there, self.store) for row in each.rows()]


def random_nodes(rng: random.Random, domain: str, skews: dict[str, int]) -> Tree:
    """A tree of one to three relays and their replicas, on the hosts of ``skews``."""
    tree = Tree(domain, skews)
    hosts = list(skews)
    relays = [tree.add("r1", relay=True, host=rng.choice(hosts))]
    for number in range(2, rng.choice((2, 3, 4))):
        relays.append(tree.add(f"r{number}", rng.choice((None, *relays)), relay=True, host=rng.choice(hosts)))
    for number in range(rng.choice((1, 2, 3))):
        tree.add(f"a{number}", rng.choice((*relays, None)), host=rng.choice(hosts))
    return tree


def random_tree(rng: random.Random, domain: str) -> Tree:
    """Such a tree, with faults of any kind on any hop."""
    tree = random_nodes(
        rng, domain, {f"h{number}": rng.choice((0, 0, rng.randint(-5000, 5000))) for number in range(4)}
    )
    relays, agents = [each for each in tree.nodes if each.relay], [each for each in tree.nodes if not each.relay]
    kinds = ("lose", "ignore", "alter", "repeat", "never repair", "forget", "change")
    other = random.Random(str(rng.getstate()[1][:8]))
    for _ in range(rng.choice((3, 10, 20))):
        what = rng.random()
        below = [each for each in agents if each.parent is not None]
        if what < 0.1 and below:
            tree.move(rng.choice(below), rng.choice(relays))
        elif what < 0.12 and below:  # its first hello comes after some messages, or never
            node = rng.choice(below)
            tree.move(node, rng.choice(relays), named=False)
            for _ in range(rng.randrange(3)):
                tree.publish()
            if rng.random() < 0.5:
                tree.stop(node)
                node.parent = None
            else:
                tree.name(node, tree.time + 30)
        elif what < 0.15:
            node = rng.choice(relays)
            tree.stop(node, clean=rng.random() < 0.5)
            for each in [each for each in below if each.parent is node and rng.random() < 0.5]:
                tree.move(each, rng.choice(relays))
            tree.restart(node)
        else:
            for node in (*relays, *agents):
                if rng.random() < 0.2:
                    tree.faults[rng.choice(kinds), node.name].add(tree.position + 1)
                if other.random() < 0.05:
                    tree.faults["claim", node.name].add(tree.position + 1)
            tree.publish()
    return tree


def with_gaps(rng: random.Random, rows: list[Row]) -> list[Row]:
    """The rows, without some records of some runs."""
    for run in sorted({row.run for row in rows if row.side != "store"}):
        if rng.random() < 0.1:
            last = max(row.number for row in rows if row.run == run)
            begin = rng.randrange(1, last + 1)
            gone = range(begin, begin + rng.choice((1, 2, 10)))
            kept = [row for row in rows if row.run != run or row.number not in gone]
            rows = kept if any(row.run == run for row in kept) else rows
    return rows
