"""All commands by name. Only the command that is run is imported; ``complete`` imports all."""

from importlib.metadata import EntryPoint
from typing import Final

from cliff.command import Command
from cliff.commandmanager import CommandManager

COMMANDS: Final = {
    "accept": (
        "pubsub_lib.cli.commands.accept:Accept",
        "Accept the rows of a topic as they are: recompute its head and publish it",
    ),
    "add": ("pubsub_lib.cli.commands.add:Add", "Create an object and publish the change"),
    "agents": (
        "pubsub_lib.cli.commands.agents:ListAgents",
        "List the replicas and relays that announced themselves: topics, staleness, version, parent",
    ),
    "bind": ("pubsub_lib.cli.commands.bind:Bind", "Bind a port to this host (or another host) and publish the change"),
    "clean": (
        "pubsub_lib.cli.commands.clean:Clean",
        "Delete all objects, or the objects of a table or a topic, and publish the changes",
    ),
    "clients add": (
        "pubsub_lib.cli.commands.clients:AddClient",
        "Add a client, and print its key file with the secret key, which is stored nowhere else",
    ),
    "clients grant": ("pubsub_lib.cli.commands.clients:GrantTopics", "Let a client receive further topics"),
    "clients list": (
        "pubsub_lib.cli.commands.clients:ListClients",
        "List the clients: the topics that each may receive, and its public key",
    ),
    "clients revoke": (
        "pubsub_lib.cli.commands.clients:RevokeClient",
        "Remove a client and its key, or with --topics or --everything only these grants",
    ),
    "diff": (
        "pubsub_lib.cli.commands.diff:Diff",
        "List the objects that differ between two positions of the changelog",
    ),
    "dropall": (
        "pubsub_lib.cli.commands.dropall:Dropall",
        "Drop this library's tables and all objects without publishing that",
    ),
    "dump": ("pubsub_lib.cli.commands.dump:Dump", "Show all objects with their values (for many objects use export)"),
    "export": (
        "pubsub_lib.cli.commands.export:Export",
        "Write all objects of one consistent reading to a file of JSON lines that load reads",
    ),
    "get": ("pubsub_lib.cli.commands.get:Get", "Show one object: its topic, version and value"),
    "history": (
        "pubsub_lib.cli.commands.history:History",
        "List the versions of one object that the changelog still has, oldest first",
    ),
    "init": ("pubsub_lib.cli.commands.init:Init", "Create the tables in an empty database (and the file, for SQLite)"),
    "load": ("pubsub_lib.cli.commands.load:Load", "Write the objects of a file of JSON lines, and publish them"),
    "log": (
        "pubsub_lib.cli.commands.log:Log",
        "Show the changelog: the newest changes, or the changes after a position; --follow continues with new changes",
    ),
    "ls": ("pubsub_lib.cli.commands.ls:Ls", "List the keys of a table, with topic and version"),
    "migrate": (
        "pubsub_lib.cli.commands.migrate:Migrate",
        "Migrate the tables of an older version to this version. Stop all writers before",
    ),
    "new-id": (
        "pubsub_lib.cli.commands.new_id:NewId",
        "Give the store a new id. Run it once on each copy of a database, before the copy's programs start",
    ),
    "publishers": (
        "pubsub_lib.cli.commands.publishers:Publishers",
        "List the services in the directory: the address of each, and how many seconds are left of its lease",
    ),
    "resync": (
        "pubsub_lib.cli.commands.resync:Resync",
        "Ask a running replica to read topics again from the store. The command itself needs no database",
    ),
    "rm": ("pubsub_lib.cli.commands.rm:Rm", "Delete objects of a table in one transaction, and publish the changes"),
    "send": ("pubsub_lib.cli.commands.send:Send", "Write a test event to a topic, publish it, and delete it again"),
    "status": (
        "pubsub_lib.cli.commands.status:Status",
        "Show the state of the store, its services and topics, and the bounds of a replica's staleness",
    ),
    "tables": ("pubsub_lib.cli.commands.tables:Tables", "List the tables and how many objects each holds"),
    "top": (
        "pubsub_lib.cli.commands.top:Top",
        "Show a live screen: rates of written and received changes, lags, missing messages. q or Ctrl-C ends it",
    ),
    "topics": (
        "pubsub_lib.cli.commands.topics:Topics",
        "List the topics: number of objects, position of the head, and digest of each",
    ),
    "tree": (
        "pubsub_lib.cli.commands.tree:Tree",
        "Show the tree of services, relays and replicas: how many are below each, and how stale each is",
    ),
    "update": ("pubsub_lib.cli.commands.update:Update", "Merge members into an object's value and publish the change"),
    "verify": (
        "pubsub_lib.cli.commands.verify:Verify",
        "Compare the rows of a topic with its head, and with the contents of a running replica",
    ),
    "watch": (
        "pubsub_lib.cli.commands.watch:Watch",
        "Show messages as they arrive: sender, sequence, position, latency, and missing messages",
    ),
}
"""Name -> (``module:class``, the first sentence of its help), sorted. With the sentences here, the list of commands is
shown without importing any of them."""

OF_PROGRAM: Final = {
    "complete": (
        "pubsub_lib.cli.completion:Complete",
        "Print a script that completes commands, options, tables and topics in a shell",
    ),
    "help": ("pubsub_lib.cli.help_command:Help", "Show the help of a command, or the list of the commands"),
}
"""The commands that concern the program itself, in place of those of cliff."""

_NAMESPACE: Final = "pubsub_lib.cli"
"""cliff looks for the hooks of a command among the entry points of the group ``pubsub_lib.cli.<name>``."""


class _Commands(CommandManager):
    def load_commands(self, namespace: str) -> None:
        """Enter the commands of the tables. They are not imported."""
        for name, (target, _) in {**COMMANDS, **OF_PROGRAM}.items():
            self.commands[name] = EntryPoint(name, target, namespace)

    def add_command(self, name: str, command_class: type[Command]) -> None:
        """Enter a command unless there is one of this name: cliff adds its own ``complete`` and ``help``."""
        if name not in self.commands:
            super().add_command(name, command_class)


def manager() -> CommandManager:
    """A cliff manager of these commands. It imports none of them."""
    return _Commands(_NAMESPACE)
