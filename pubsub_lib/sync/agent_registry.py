"""The agents that announced themselves to a service or a relay: in memory only, bounded, and for a stated time."""

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pubsub_lib.sync.agents import (
    KEPT_INTERVALS,
    MAX_AGENTS,
    MAX_BYTES,
    MAX_HOPS,
    MAX_LEFT_OUT,
    Agent,
    Announcement,
    encode,
    merged,
    summary,
)


class _Entry(NamedTuple):
    at: float
    until: float
    agents: Sequence[Agent]
    """The one that announced itself, and those below it."""
    size: int
    left_out: int


class Known(NamedTuple):
    """The agents at one moment."""

    agents: Sequence[Agent]
    left_out: int
    """Number of agents below relays for which there was no place."""


class AgentRegistry:
    """Keeps the last announcement of each agent for ``KEPT_INTERVALS`` of its intervals. ``own``: the UUID of this
    service or relay, which is never among the agents. Times are of one clock, in seconds. Any thread.
    """

    def __init__(self, own: str, max_agents: int = MAX_AGENTS, max_bytes: int = MAX_BYTES) -> None:
        self.own = own
        self._max_agents = max_agents
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        """By the UUID of the one that announced itself."""
        self._count = self._size = 0

    def receive(self, announced: Announcement, now: float) -> bool:
        """Replace what this agent announced before. False: there is no place for it. Agents below it without a place
        are counted.
        """
        if announced.agent.uuid == self.own:
            return True  # the answer names this UUID, so the sender finds its mistake
        with self._lock:
            before = self._forget(announced.agent.uuid)
            if announced.leaving:
                return True
            made = self._entry(announced, now)
            if made is None or made.left_out > announced.left_out:
                self._expire(now)
                made = self._entry(announced, now)
            kept = made or before  # what it announced before stays for its time
            if kept is not None and kept.until > now:
                self._keep(announced.agent.uuid, kept)
            return made is not None

    def known(self, now: float) -> Known:
        """The agents, by name. One that several announced is there once, with the lowest age."""
        with self._lock:
            self._expire(now)
            entries = tuple(self._entries.values())
        agents = merged(
            msgspec.structs.replace(agent, age=agent.age + max(0.0, now - entry.at))
            for entry in entries
            for agent in entry.agents
        )
        return Known(agents, min(sum(each.left_out for each in entries), MAX_LEFT_OUT))

    def gauges(self, now: float) -> Mapping[str, float]:
        """The number of agents, of those that were not synced, and the largest staleness of the others."""
        agents, left_out = self.known(now)
        found = summary(agents)
        return {
            "known": float(found.known),
            "left_out": float(left_out),
            "unsynced": float(found.unsynced),
            "max_staleness": found.max_staleness,
        }

    def _entry(self, announced: Announcement, now: float) -> _Entry | None:
        agents: list[Agent] = []
        size = 0
        left_out = sum(each.hops >= MAX_HOPS for each in announced.below)
        own = msgspec.structs.replace(announced.agent, age=0.0, hops=0)
        below = (msgspec.structs.replace(each, hops=each.hops + 1) for each in announced.below if each.hops < MAX_HOPS)
        for agent in (own, *below):
            if agent.uuid == self.own:
                continue  # relays that announce themselves to one another
            needed = len(encode(agent))
            if self._count + len(agents) < self._max_agents and self._size + size + needed <= self._max_bytes:
                agents.append(agent)
                size += needed
            elif not agents:
                return None
            else:
                left_out += 1
        until = now + KEPT_INTERVALS * announced.interval
        return _Entry(now, until, agents, size, announced.left_out + left_out)

    def _expire(self, now: float) -> None:
        for uuid in [uuid for uuid, each in self._entries.items() if each.until <= now]:
            self._forget(uuid)

    def _keep(self, uuid: str, entry: _Entry) -> None:
        self._entries[uuid] = entry
        self._count += len(entry.agents)
        self._size += entry.size

    def _forget(self, uuid: str) -> _Entry | None:
        before = self._entries.pop(uuid, None)
        if before is not None:
            self._count -= len(before.agents)
            self._size -= before.size
        return before
