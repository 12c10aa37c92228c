"""All commands by name. Only the one that is run gets imported; ``--help`` and ``complete`` import all."""

from importlib.metadata import EntryPoint
from typing import Final

from cliff.commandmanager import CommandManager

COMMANDS: Final = {
    "accept": "pubsub_lib.cli.accept:Accept",
    "add": "pubsub_lib.cli.add:Add",
    "bind": "pubsub_lib.cli.bind:Bind",
    "clean": "pubsub_lib.cli.clean:Clean",
    "diff": "pubsub_lib.cli.diff:Diff",
    "dropall": "pubsub_lib.cli.dropall:Dropall",
    "dump": "pubsub_lib.cli.dump:Dump",
    "export": "pubsub_lib.cli.export:Export",
    "get": "pubsub_lib.cli.get:Get",
    "history": "pubsub_lib.cli.history:History",
    "init": "pubsub_lib.cli.init:Init",
    "load": "pubsub_lib.cli.load:Load",
    "log": "pubsub_lib.cli.log:Log",
    "ls": "pubsub_lib.cli.ls:Ls",
    "migrate": "pubsub_lib.cli.migrate:Migrate",
    "publishers": "pubsub_lib.cli.publishers:Publishers",
    "resync": "pubsub_lib.cli.resync:Resync",
    "rm": "pubsub_lib.cli.rm:Rm",
    "send": "pubsub_lib.cli.send:Send",
    "status": "pubsub_lib.cli.status:Status",
    "tables": "pubsub_lib.cli.tables:Tables",
    "top": "pubsub_lib.cli.top:Top",
    "topics": "pubsub_lib.cli.topics:Topics",
    "update": "pubsub_lib.cli.update:Update",
    "verify": "pubsub_lib.cli.verify:Verify",
    "watch": "pubsub_lib.cli.watch:Watch",
}
"""Name -> ``module:class``, sorted."""

_GROUP: Final = "pubsub_lib.cli"


def manager() -> CommandManager:
    """A manager that knows these commands. Imports none of them."""
    made = CommandManager()
    for name, target in COMMANDS.items():
        made.commands[name] = EntryPoint(name, target, _GROUP)
    return made
