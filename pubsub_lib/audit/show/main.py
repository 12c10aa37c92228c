"""``pubsub-audit show`` alone: without the modules of the other commands, which need Spark's packages."""

from collections.abc import Sequence

from pubsub_lib.audit.arguments import PROGRAM, Parser, add_output_options
from pubsub_lib.audit.guard import guarded
from pubsub_lib.audit.show import command
from pubsub_lib.command import entry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code. Raises no exception. The first argument is ``show``."""
    return entry.run(PROGRAM, lambda: _started(arguments))


def _started(arguments: Sequence[str] | None) -> int:
    top = Parser(prog=PROGRAM)
    show = top.add_subparsers(required=True).add_parser(command.NAME, help=command.HELP)
    command.add_options(show)
    add_output_options(show)
    options = top.parse_args(arguments)
    return guarded(lambda: command.run(options), debug=options.debug)
