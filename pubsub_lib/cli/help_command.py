"""``pubsub-db help``."""

import argparse

from pubsub_lib.cli import help_pages
from pubsub_lib.cli.output import Act
from pubsub_lib.command import exit_codes


class Help(Act):
    """Show the help of a command, or the list of the commands."""

    example = "help clients add"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The command."""
        parser.add_argument("command", metavar="COMMAND", nargs="*", help="the command's name (default: the list)")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Import the command, if one is named, and print its help."""
        if parsed_args.command:
            kind, name, _ = self.app.command_manager.find_command(parsed_args.command)
            parser = kind(self.app, self.app_args, cmd_name=name).get_parser(f"{self.app.NAME} {name}")
            help_pages.print_command(parser, self.app.stdout)
        else:
            help_pages.print_program(self.app)
        return exit_codes.OK
