"""The pages of ``--help``, on a terminal through a pager.

The list of commands comes from their table: cliff would import every command, and read the metadata of every installed
package, to print it.
"""

import argparse
from typing import TextIO

from cliff.app import App

from pubsub_lib.cli.commands import COMMANDS, OF_PROGRAM


def print_program(app: App) -> None:
    """Print the options of the program and the list of its commands. No command is imported."""
    _print(
        app.parser, app.stdout, {name: sentence for name, (_, sentence) in sorted({**COMMANDS, **OF_PROGRAM}.items())}
    )


def print_command(parser: argparse.ArgumentParser, out: TextIO) -> None:
    """Print the help of a command."""
    _print(parser, out, {})


def _print(parser: argparse.ArgumentParser, out: TextIO, commands: dict[str, str]) -> None:
    if not out.isatty():
        out.write(parser.format_help() + _list(commands, color=False))
        return
    import autopage.argparse

    pager = autopage.argparse.help_pager(out)
    color = pager.to_terminal()
    autopage.argparse.use_color_for_parser(parser, color)
    with pager as paged:
        paged.write(parser.format_help() + _list(commands, color=color))


def _list(commands: dict[str, str], *, color: bool) -> str:
    if not commands:
        return ""
    title, name, end, plain = ("\033[4m", "\033[36m", "\033[0m", "\033[39m") if color else ("", "", "", "")
    width = max(map(len, commands))
    lines = [f"  {name}{each:<{width}}{plain}  {sentence}\n" for each, sentence in commands.items()]
    return f"\n{title}Commands{end}:\n{''.join(lines)}"
