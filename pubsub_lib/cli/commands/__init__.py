"""All commands by name. Only the command that is run is imported; ``--help`` and ``complete`` import all."""

from importlib.metadata import EntryPoint
from typing import Final

from cliff.commandmanager import CommandManager

COMMANDS: Final = {
    "accept": "pubsub_lib.cli.commands.accept:Accept",
    "add": "pubsub_lib.cli.commands.add:Add",
    "bind": "pubsub_lib.cli.commands.bind:Bind",
    "clean": "pubsub_lib.cli.commands.clean:Clean",
    "clients add": "pubsub_lib.cli.commands.clients:AddClient",
    "clients grant": "pubsub_lib.cli.commands.clients:GrantTopics",
    "clients list": "pubsub_lib.cli.commands.clients:ListClients",
    "clients revoke": "pubsub_lib.cli.commands.clients:RevokeClient",
    "diff": "pubsub_lib.cli.commands.diff:Diff",
    "dropall": "pubsub_lib.cli.commands.dropall:Dropall",
    "dump": "pubsub_lib.cli.commands.dump:Dump",
    "export": "pubsub_lib.cli.commands.export:Export",
    "get": "pubsub_lib.cli.commands.get:Get",
    "history": "pubsub_lib.cli.commands.history:History",
    "init": "pubsub_lib.cli.commands.init:Init",
    "load": "pubsub_lib.cli.commands.load:Load",
    "log": "pubsub_lib.cli.commands.log:Log",
    "ls": "pubsub_lib.cli.commands.ls:Ls",
    "migrate": "pubsub_lib.cli.commands.migrate:Migrate",
    "new-id": "pubsub_lib.cli.commands.new_id:NewId",
    "publishers": "pubsub_lib.cli.commands.publishers:Publishers",
    "resync": "pubsub_lib.cli.commands.resync:Resync",
    "rm": "pubsub_lib.cli.commands.rm:Rm",
    "send": "pubsub_lib.cli.commands.send:Send",
    "status": "pubsub_lib.cli.commands.status:Status",
    "tables": "pubsub_lib.cli.commands.tables:Tables",
    "top": "pubsub_lib.cli.commands.top:Top",
    "topics": "pubsub_lib.cli.commands.topics:Topics",
    "update": "pubsub_lib.cli.commands.update:Update",
    "verify": "pubsub_lib.cli.commands.verify:Verify",
    "watch": "pubsub_lib.cli.commands.watch:Watch",
}
"""Name -> ``module:class``, sorted."""

_NAMESPACE: Final = "pubsub_lib.cli"
"""cliff looks for the hooks of a command among the entry points of the group ``pubsub_lib.cli.<name>``."""


class _Commands(CommandManager):
    def load_commands(self, namespace: str) -> None:
        """Enter the commands of the table. They are not imported."""
        self.commands.update({name: EntryPoint(name, target, namespace) for name, target in COMMANDS.items()})


def manager() -> CommandManager:
    """A cliff manager of these commands. It imports none of them."""
    return _Commands(_NAMESPACE)
