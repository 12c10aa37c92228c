"""``pubsub-db agents``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pubsub_lib.cli.agents_client import add_url, last_announced, seen, staleness, without_hidden
from pubsub_lib.cli.formatting import Shown
from pubsub_lib.cli.output import List
from pubsub_lib.core.model import ALL
from pubsub_lib.sync.agents import Agent

HIDDEN: Final = 5
"""Number of the last columns, which a table shows only if they are named."""
MAX_SHOWN: Final = 3
"""Maximum number of topics that a table names."""


class ListAgents(List):
    """List the replicas and relays that announced themselves: topics, staleness, version, parent.

    Replicas and relays with sync_url, or with parents alone, announce themselves to publisher services and relays with
    serve_syncs. No query of the database is made for them.
    """

    example = "agents --url http://127.0.0.1:8867 --sort-column staleness"
    columns = (
        "name", "role", "host", "parent", "topics", "staleness", "last_announced", "version",
        "topics_total", "listens_to", "address", "hops", "uuid",
    )  # fmt: skip

    nothing = "no agent has announced itself"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The services to ask."""
        add_url(parser)

    def column_names(self, parsed_args: argparse.Namespace) -> Sequence[str]:
        """A table has the last columns only if one of them is named."""
        named = (*parsed_args.columns, *parsed_args.sort_columns)
        return without_hidden(parsed_args, named, self.columns, HIDDEN)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Raises ConfigError, DriverError, StoreError, NotFound, TransportError."""
        return map(_row, seen(self, parsed_args.url).agents)


def _row(agent: Agent) -> tuple[Any, ...]:
    total = agent.topics_total
    return (
        agent.name, agent.role, agent.host, agent.parent,
        Shown(list(agent.topics), lambda topics: _topics_text(topics, total)),
        staleness(agent), last_announced(agent), agent.version,
        total, Shown(list(agent.listens_to), ", ".join), agent.address, agent.hops, agent.uuid,
    )  # fmt: skip


def _topics_text(topics: Sequence[str], total: int) -> str:
    if list(topics) == [ALL]:
        return "all topics"
    more = total - len(topics[:MAX_SHOWN])
    return ", ".join(topics[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
