"""Agents and announcements for tests."""

from typing import Any

from pubsub_lib.sync.agents import Agent, Announcement


def agent(name: str = "agent-1", **changes: Any) -> Agent:
    """An agent whose UUID follows from its name."""
    given: dict[str, Any] = {
        "uuid": f"u-{name}", "name": name, "host": "host-1", "version": "1.0", "topics": ("t",), "topics_total": 1,
        "staleness": 0.5,
    }  # fmt: skip
    return Agent(**{**given, **changes})


def announcement(name: str = "agent-1", *below: Agent, interval: float = 10.0, **changes: Any) -> Announcement:
    """The announcement of this agent, with those below it."""
    return Announcement(agent=agent(name), interval=interval, below=list(below), **changes)
