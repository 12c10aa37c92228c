"""All commands by name. Only the one that is run gets imported; ``--help`` and ``complete`` import all."""

from importlib.metadata import EntryPoint
from typing import Final

from cliff.commandmanager import CommandManager

COMMANDS: Final = {
    "get": "pubsub_lib.cli.get:Get",
    "ls": "pubsub_lib.cli.ls:Ls",
    "tables": "pubsub_lib.cli.tables:Tables",
}
"""Name -> ``module:class``, sorted."""

_GROUP: Final = "pubsub_lib.cli"


def manager() -> CommandManager:
    """A manager that knows these commands. Imports none of them."""
    made = CommandManager()
    for name, target in COMMANDS.items():
        made.commands[name] = EntryPoint(name, target, _GROUP)
    return made
