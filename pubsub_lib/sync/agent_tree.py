"""The tree of services, relays and replicas, from what the agents announced about their parents."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pubsub_lib.core.leased_publishers import ORIGIN, RELAY
from pubsub_lib.sync.agents import Agent, Agents

UNKNOWN: Final = "unknown"
"""The role of a parent that did not announce itself."""

_Place = tuple[str, str]
"""What may have agents below it: a root or an unknown parent by its name, an agent by its UUID; first the role."""
_AGENT: Final = "agent"


class Node(NamedTuple):
    """One row of the tree, which is listed from above, each node before those below it."""

    name: str
    role: str
    depth: int
    agent: Agent | None
    """None for the services that were asked, and for unknown parents."""
    below: int = 0
    """Number of agents below it."""


def tree_of(services: Sequence[Agents], agents: Sequence[Agent]) -> list[Node]:
    """The origin services together are the root, because agents without a parent listen to all of them. An agent is
    below the relay that it names as its parent; without an announcement of that, below an unknown one. Of relays with
    one name it is below the one at the address that it listens to. Agents that are below themselves, which is wrong or
    outdated, are last. ``agents``: each once.
    """
    return _counted(_Tree(services, agents).nodes())


class _Tree:
    def __init__(self, services: Sequence[Agents], agents: Sequence[Agent]) -> None:
        self._agents = agents
        known = {each.uuid for each in agents}
        origins = sorted({each.service for each in services if each.role == ORIGIN})
        alone = sorted({each.service for each in services if each.role == RELAY and each.uuid not in known})
        self._roots: list[_Place] = [(ORIGIN, ", ".join(origins))] if origins else []
        self._roots += [(RELAY, name) for name in alone]
        # Without a root, relays that name each other in sync_url were asked.
        top = self._roots[0] if self._roots else (UNKNOWN, UNKNOWN)
        of_name: dict[str, _Place] = dict.fromkeys(("", *origins), top)
        for name in alone:
            of_name.setdefault(name, (RELAY, name))
        at: dict[tuple[str, str], _Place] = {}
        for each in sorted(agents, key=lambda each: each.age):
            if each.role == RELAY:  # of two starts of a relay, that which announced itself last
                of_name.setdefault(each.name, (_AGENT, each.uuid))
                at.setdefault((each.name, each.address), (_AGENT, each.uuid))
        self._below: dict[_Place, list[Agent]] = {}
        for each in agents:
            place = of_name.get(each.parent, (UNKNOWN, each.parent))
            if place[0] == _AGENT and each.listens_to:
                place = at.get((each.parent, each.listens_to[0]), place)
            self._below.setdefault(place, []).append(each)
        self._shown: set[str] = set()

    def nodes(self) -> Iterator[Node]:
        """All nodes, without their numbers."""
        for role, name in self._roots:
            yield Node(name, role, 0, None)
            yield from self._under(self._below.get((role, name), ()), 1)
        for role, name in sorted(place for place in self._below if place[0] == UNKNOWN):
            yield Node(name, role, 0, None)
            yield from self._under(self._below[role, name], 1)
        for agent in sorted(self._agents, key=lambda each: each.role != RELAY):
            yield from self._under((agent,), 0)

    def _under(self, first: Iterable[Agent], depth: int) -> Iterator[Node]:
        """These agents, each followed by those below it, without those that were there already."""
        ahead = [(each, depth) for each in first][::-1]
        while ahead:
            agent, at = ahead.pop()
            if agent.uuid in self._shown:
                continue
            self._shown.add(agent.uuid)
            yield Node(agent.name, agent.role, at, agent)
            ahead += [(each, at + 1) for each in self._below.get((_AGENT, agent.uuid), ())][::-1]


def _counted(nodes: Iterable[Node]) -> list[Node]:
    """The nodes with the numbers of agents below them."""
    found = list(nodes)
    passed = 0
    ends: list[tuple[int, int]] = []
    """For each node after the current one that is no deeper than those between: its depth, and the agents after it."""
    for at in range(len(found) - 1, -1, -1):
        node = found[at]
        while ends and ends[-1][0] > node.depth:
            ends.pop()
        after = ends[-1][1] if ends else 0
        found[at] = Node(node.name, node.role, node.depth, node.agent, passed - after)
        passed += node.agent is not None
        ends.append((node.depth, passed))
    return found
