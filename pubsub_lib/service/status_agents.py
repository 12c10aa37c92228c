"""The agents on the status page: replicas and relays that announced themselves, as a tree."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from pubsub_lib.core.model import ALL
from pubsub_lib.service.status_html import ago, left_out, name, names, number, paragraph, seconds, table, text
from pubsub_lib.sync.agent_tree import Node, tree_of
from pubsub_lib.sync.agents import Agent, Agents, summary

MAX_ROWS: Final = 100
"""Maximum number of rows; those nearest to the service come first in each branch."""
MAX_NAMED: Final = 3
"""Maximum number of topics that are named for an agent."""
MAX_INDENT: Final = 4
"""Maximum depth that is shown by the place of a name."""
COLUMNS: Final = ("Name", "About", "Topics", "Announced", "Staleness")
_UNKNOWN: Final = (
    "This service does not know which replicas exist, nor how stale they are: each one measures its own staleness. "
    "<code>/ready</code> and <code>/metrics</code> of a replica have it "
    "(<code>pubsub_replica_staleness_seconds</code>). With <code>serve_syncs</code> replicas that read "
    "their syncs from this service announce themselves to it."
)
_KNOWN: Final = (
    "Replicas and relays with <code>sync_url</code>, or with <code>parents</code> alone, announce themselves; "
    "others are not in this list. The staleness is that of the last announcement."
)


def agents_of(found: Agents | None) -> str:
    """The tree of these agents; None: this service takes no announcements."""
    if found is None:
        return paragraph(_UNKNOWN)
    if not found.agents:
        return paragraph(_KNOWN) + paragraph("No agent has announced itself.")
    nodes = tree_of([found], found.agents)
    about = summary(found.agents)
    states = [f"{number(about.unsynced)} not synced"] if about.unsynced else []
    if about.stalest is not None:
        states.append(f"the stalest, {name(about.stalest.name)}, {seconds(about.max_staleness)}")
    caption = f"{number(about.known)} agents: {', '.join(states)}"
    return (
        paragraph(_KNOWN)
        + table(caption, COLUMNS, _rows(islice(nodes, MAX_ROWS)), 1)
        + left_out(len(nodes) - MAX_ROWS, "rows", "tree")
        + left_out(found.left_out, "agents, for which there was no place,", "agents --url")
    )


def _rows(nodes: Iterable[Node]) -> Iterable[tuple[str, ...]]:
    for node in nodes:
        agent = node.agent
        below = f", {number(node.below)} below" if node.below else ""
        shown = f'<span class="depth-{min(node.depth, MAX_INDENT)}">{name(node.name)}</span>'
        if agent is None:
            yield shown, node.role + below, "", "", ""
        else:
            about = f"{node.role} on {name(agent.host)}, version {text(agent.version)}{below}"
            state = "not synced" if agent.staleness is None else seconds(agent.staleness)
            yield shown, about, _topics(agent), ago(agent.age), state


def _topics(agent: Agent) -> str:
    return "all" if ALL in agent.topics else names(agent.topics[:MAX_NAMED], agent.topics_total)
