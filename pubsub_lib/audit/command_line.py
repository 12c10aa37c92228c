"""The command line of ``pubsub-audit``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pubsub_lib.audit.arguments import PROGRAM, Parser, add_output_options
from pubsub_lib.audit.lake import command as of_lake
from pubsub_lib.audit.option_types import seconds
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.audit.show import command as show
from pubsub_lib.audit.stream import command
from pubsub_lib.core.timing import Timing, lost_message_bound, no_publisher_bound

_SECONDS: Final[tuple[tuple[str, float | None, str], ...]] = (
    ("window", 60.0, "length of a window"),
    ("grace", 30.0, "longest transit time of a message plus the largest clock difference"),
    ("bound", None, "maximum time from a commit until a replica has the change"),
    ("silence", 60.0, "a run that has not ended and wrote no record for longer has expired: windows close without it"),
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = Parser(prog=PROGRAM, description="Compare published with applied messages, from journals.")
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser("run", help="audit journals and print the result")
    _add_journals(run, "their store is read, too")
    _add_store(run)
    _add_expect(run)
    run.add_argument("--out", type=Path, metavar="FOLDER", help="folder for the tables and the summary")
    run.add_argument("--csv", action="store_true", help="also write each table of --out as a CSV file")
    of_lake.add_append_options(run)
    _add_settings(run)
    following = commands.add_parser("follow", help="audit journals while they grow: print each window when it closes")
    _add_journals(following, "their store is read, too, each time when windows close")
    _add_store(following)
    _add_expect(following)
    command.add_options(following)
    of_lake.add_append_options(following)
    _add_settings(following)
    again = commands.add_parser("report", help="show the result of an earlier run, or the days of a folder of --append")
    again.add_argument("folder", type=Path, metavar="FOLDER", help="the --out folder of that run, or one of --append")
    again.add_argument("--page", type=Path, metavar="FILE", help="also write the HTML page to this file")
    of_lake.add_options(again)
    shown = commands.add_parser(show.NAME, help=show.HELP)
    show.add_options(shown)
    making = commands.add_parser(
        "prepare", help="make an archive of Spark's classes, from which small audits start faster (some 200 MB)"
    )
    for each in (run, following, again, shown, making):
        add_output_options(each)
    return top


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options that the arguments give; ``command`` is None only with ``--version``. Exits with 64 for an error."""
    top = parser()
    options = top.parse_args(arguments)
    if options.command is None and not options.version:
        top.error("the following arguments are required: COMMAND")
    return options


def _add_journals(command: argparse.ArgumentParser, also: str) -> None:
    command.add_argument(
        "journals",
        nargs="*",
        metavar="[DOMAIN=]FOLDER",
        help="folders of journals; a domain stands for a database (default: journal_folder of --config-file)",
    )
    command.add_argument(
        "--config-file",
        type=Path,
        metavar="FILE",
        help=f"the INI file of the programs that wrote the journals; {also}",
    )


def _add_store(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--store",
        metavar="URL",
        help="also read changelog and objects of this database; a URL with a password belongs in a --config-file",
    )


def _add_expect(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--expect", type=Path, metavar="FILE", help="participants that must have a journal, one 'side name' per line"
    )


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", default="local[*]", help="Spark's master (default: %(default)s)")
    command.add_argument("--memory", default="2g", help="memory of Spark's driver (default: %(default)s)")
    command.add_argument("--strict", action="store_true", help="count reordered and repeated messages as faults")
    for name, default, text in _SECONDS:
        shown = "%(default)s" if default is not None else f"of the times in --config-file, else {_default_bound():g}"
        help_text = f"{text} ({shown})"
        command.add_argument(f"--{name}", type=seconds, default=default, metavar="SECONDS", help=help_text)


def bound_of(timing: Timing) -> float:
    """Seconds within which a change is in every replica, with or without a publisher (rule 13)."""
    return max(bound(timing, timing.sync_timeout) for bound in (lost_message_bound, no_publisher_bound))


def _default_bound() -> float:
    return bound_of(Timing())


def settings_of(options: argparse.Namespace, timing: Timing | None = None) -> AuditSettings:
    """The settings that the options of ``run`` and ``follow`` give. ``timing``: the times of the programs that wrote
    the journals, if they are known; the bound follows from them. Raises ConfigError.
    """
    given = {name: getattr(options, name) for name, _, _ in _SECONDS}
    if given["bound"] is None:
        given["bound"] = bound_of(timing) if timing is not None else _default_bound()
    times = {name: round(value * SECOND) for name, value in given.items()}
    return AuditSettings(**times, strict=options.strict)
