"""``pubsub-db tree``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pubsub_lib.cli.agents_client import add_url, last_announced, seen, staleness, without_hidden
from pubsub_lib.cli.formatting import Shown
from pubsub_lib.cli.output import List
from pubsub_lib.sync.agent_tree import Node, tree_of

HIDDEN: Final = 2
"""Number of the last columns, which a table shows only if they are named."""
MAX_INDENT: Final = 20
"""Maximum depth that a table shows by spaces."""


class Tree(List):
    """Show the tree of services, relays and replicas: how many are below each, and how stale each is.

    It is made of the announcements that pubsub-db agents lists, by the parents that the agents name.
    """

    example = "tree --url http://127.0.0.1:8867"
    columns = ("name", "role", "below", "staleness", "last_announced", "host", "version", "depth", "uuid")

    sortable = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The services to ask."""
        add_url(parser)

    def column_names(self, parsed_args: argparse.Namespace) -> Sequence[str]:
        """A table has the last columns only if one of them is named."""
        return without_hidden(parsed_args, parsed_args.columns, self.columns, HIDDEN)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Raises ConfigError, DriverError, StoreError, NotFound, TransportError."""
        found = seen(self, parsed_args.url)
        return map(_row, tree_of(found.services, found.agents))


def _row(node: Node) -> tuple[Any, ...]:
    agent = node.agent
    indent = "  " * min(node.depth, MAX_INDENT)
    name = Shown(node.name, lambda name: indent + name)
    if agent is None:
        return name, node.role, node.below, _none(), _none(), "", "", node.depth, ""
    return (
        name, node.role, node.below, staleness(agent), last_announced(agent), agent.host, agent.version,
        node.depth, agent.uuid,
    )  # fmt: skip


def _none() -> Shown:
    """The value of a node that did not announce itself: null for programs, nothing for people."""
    return Shown(None, lambda value: "")
