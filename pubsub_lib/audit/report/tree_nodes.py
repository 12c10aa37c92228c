"""The tree of the page: publishers, and below each the relays and replicas that listened to it. Needs no Spark."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pubsub_lib.audit.report.summary import CATEGORIES, HOP_FAULTS
from pubsub_lib.audit.report.times import time

LEVELS: Final = 10
"""Maximum depth of a tree: a message passes through at most 8 relays. Deeper ones stand beside the first ones."""
_ROLES: Final = {
    "service": "service",
    "relay": "relay",
    "writer": "writer",
    "replica": "replica",
    "polling": "replica, polls the database",
    "": "no journal",
}
_FAULTS: Final = ("lost", *HOP_FAULTS)
_PLACES: Final = {"at_publisher": "at the publisher", "on_wire": "on the wire", "at_replica": "at the replica"}

Hop = Mapping[str, Any]
"""A row of the table ``tree``."""


class Part(msgspec.Struct, frozen=True):
    """A part of a line. ``fault``: it needs an operator."""

    text: str
    fault: bool = False


class Node(msgspec.Struct, frozen=True):
    """A participant at its place below a publisher. ``lines``: about the hop to it. ``more``: the number of those below
    it that are left out.
    """

    name: str
    role: str
    lines: Sequence[Sequence[Part]]
    below: Sequence["Node"]
    more: int = 0


class Tree(msgspec.Struct, frozen=True):
    """The participants of a domain."""

    domain: str
    nodes: Sequence[Node]


def trees(hops: Iterable[Hop], most: int) -> list[Tree]:
    """A tree for each domain. ``most``: the maximum number of replicas below one publisher; relays are all shown."""
    domains = defaultdict[str, list[Hop]](list)
    for hop in hops:
        if hop["service"] or hop["expected"] > hop["excused"]:  # else only commits from before its first sync
            domains[hop["domain"]].append(hop)
    return [Tree(domain, _Domain(found, most).nodes()) for domain, found in sorted(domains.items())]


class _Domain:
    """The hops of one domain. What is below a relay is shown once: where it listens at the end."""

    def __init__(self, hops: Sequence[Hop], most: int) -> None:
        self._most = most
        self._below = defaultdict[str, list[Hop]](list)
        self._home: dict[str, Hop] = {}
        self._shown: set[str] = set()
        self._roles = {hop["service"]: hop["service_role"] for hop in hops}
        for hop in hops:
            self._below[hop["service"]].append(hop)
            home = self._home.setdefault(hop["name"], hop)
            if _nearness(hop) > _nearness(home):
                self._home[hop["name"]] = hop

    def nodes(self) -> list[Node]:
        """The publishers that are below no other one; then those that are only below each other, or too deep."""
        roots = sorted(self._roles.keys() - self._home.keys(), key=lambda name: (self._roles[name] == "relay", name))
        found = [self._root(name) for name in roots]
        found.extend(self._root(name) for name in sorted(self._roles) if name not in self._shown)
        return found

    def _root(self, name: str) -> Node:
        below, more = self._under(name, 1)
        return Node(name or "unknown publishers", _ROLES[self._roles[name]], (), below, more)

    def _under(self, name: str, level: int) -> tuple[list[Node], int]:
        """The nodes below a publisher, and the number of those that are left out."""
        self._shown.add(name)
        hops = self._below[name]
        relays = [hop for hop in hops if hop["name"] in self._below]
        others = [hop for hop in hops if hop["name"] not in self._below]
        shown = others[: self._most]
        nodes = [self._node(hop, level) for hop in sorted(relays, key=_name)]
        return [*nodes, *(self._node(hop, level) for hop in sorted(shown, key=_name))], len(others) - len(shown)

    def _node(self, hop: Hop, level: int) -> Node:
        name, below, more = hop["name"], list[Node](), 0
        lines = [_listening(hop), *_counts(hop)]
        if name in self._below and name not in self._shown and self._home[name] is hop and level < LEVELS:
            below, more = self._under(name, level + 1)
        elif name in self._below:
            lines.append([Part("what is below it stands elsewhere in this tree")])
        return Node(name, _ROLES[hop["name_role"]], [line for line in lines if line], below, more)


def _nearness(hop: Hop) -> tuple[bool, bool, int]:
    return hop["current"] is True, bool(hop["service"]), hop["expected"]


def _name(hop: Hop) -> str:
    return str(hop["name"])


def _listening(hop: Hop) -> list[Part]:
    """When a replica with parents listened to this one."""
    if hop["arrivals"] is None:
        return []
    came, left = (None if hop[each] is None else time(hop[each]) or str(hop[each]) for each in ("came", "left"))
    since = f"since {came} UTC"
    if not hop["current"]:
        since += " until its end" if left is None else f" until {left} UTC"
    ends = "listened here at the end" if hop["current"] else "listened here"
    return [Part(f"{ends}, {since}"), *([Part(f"came {hop['arrivals']:,} times")] if hop["arrivals"] > 1 else [])]


def _counts(hop: Hop) -> list[list[Part]]:
    """The balance of a hop; then its other faults; then where changes were last seen that no message brought."""
    if not hop["expected"]:
        return [[Part("no message was expected")]]
    sums = [Part(f"{hop[each]:,} {each}", each in _FAULTS) for each in CATEGORIES if hop[each] or each == "delivered"]
    faults = [Part(f"{hop[each]:,} {each.replace('_', ' ')}", fault=True) for each in HOP_FAULTS if hop[each]]
    places = [Part(f"{hop[each]:,} {where}") for each, where in _PLACES.items() if hop[each]]
    if places:
        places[0] = Part(f"repaired and lost ones were last seen: {places[0].text}")
    return [[Part(f"of {hop['expected']:,} expected: {sums[0].text}"), *sums[1:]], faults, places]
