"""The program around the commands: global options, log lines, and one sentence with an exit code for every error."""

import argparse
import difflib
import itertools
import logging
from typing import Any, Final, TextIO

from cliff.app import App

from pubsub_lib.cli import commands, help_pages
from pubsub_lib.command import exit_codes
from pubsub_lib.command.entry import internal_error
from pubsub_lib.command.signals import is_no_interrupt
from pubsub_lib.errors import PubSubError, UsageError
from pubsub_lib.logs import printable
from pubsub_lib.version import __version__

NAME: Final = "pubsub-db"
LOG: Final = logging.getLogger("pubsub_lib.cli")
"""Messages of a command beside its result. They go to stderr."""

_EPILOG: Final = (
    "Exit codes: 0 ok; 1 negative result (not found, exists already, mismatch); 2 invalid command line, INI file or "
    "value; 3 a publisher or a replica was not reached; 4 the database cannot be used; 5 a file or the output cannot "
    "be read or written; 70 internal error; 130 Ctrl-C; 141 the output was closed; 143 SIGTERM."
)


class PubsubDb(App):
    """One run of ``pubsub-db``. It uses the standard streams as they are when it is constructed."""

    NAME = NAME
    LOG = LOG

    def __init__(self, stdout: TextIO | None = None) -> None:
        """``stdout``: for results and help, instead of the standard output."""
        # Deferred, because "pubsub-db ls -h" asks for the help of ls.
        super().__init__(
            "Inspect and edit a pubsub_lib store.", __version__, commands.manager(), stdout=stdout, deferred_help=True
        )
        self.options = self.parser.parse_args([])  # the defaults, until ``run`` has read the arguments
        self._handler: logging.Handler | None = None

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: dict[str, Any] | None = None
    ) -> argparse.ArgumentParser:
        """The global options. They may be given before or after the command's name."""
        # No abbreviations: an abbreviated global option could match an option of the command.
        parser = argparse.ArgumentParser(
            prog=NAME, description=description, epilog=_EPILOG, add_help=False, allow_abbrev=False
        )
        parser.add_argument(
            "--version", action="version", version=f"{NAME} {version}", help="show the version and exit"
        )
        parser.add_argument(
            "--config-file",
            action="append",
            default=[],
            metavar="PATH",
            help="an INI file; may be repeated, later files take precedence. Default: pubsub_lib.conf and "
            "pubsub-db.conf in ~/.pubsub_lib, ~, /etc/pubsub_lib and /etc",
        )
        parser.add_argument(
            "--config-dir",
            action="append",
            default=[],
            metavar="DIR",
            help="a folder of *.conf files; they are read after the files of --config-file, sorted by name",
        )
        parser.add_argument(
            "--database",
            metavar="URL",
            help="the database; replaces store_url of the INI file (no INI file is needed then)",
        )
        loudness = parser.add_mutually_exclusive_group()
        loudness.add_argument(
            "-v", "--verbose", action="count", dest="verbose_level", default=1, help="show log lines; -vv: all levels"
        )
        loudness.add_argument(
            "-q",
            "--quiet",
            action="store_const",
            const=0,
            dest="verbose_level",
            help="on stderr, show only warnings and errors",
        )
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        parser.add_argument("-h", "--help", dest="deferred_help", action="store_true", help="show this help and exit")
        return parser

    def configure_logging(self) -> None:
        """Log lines go to stderr, each with the program's name and, without ``--debug``, never with a traceback."""
        level = self.options.verbose_level
        self._handler = logging.StreamHandler(self.stderr)
        self._handler.setFormatter(_Line(tracebacks=self.options.debug))
        self._handler.addFilter(is_no_interrupt)
        root = logging.getLogger()
        root.addHandler(self._handler)
        root.setLevel({0: logging.ERROR, 1: logging.ERROR, 2: logging.INFO}.get(level, logging.DEBUG))
        LOG.setLevel(logging.WARNING if level == 0 else logging.DEBUG if level > 2 else logging.INFO)

    def run(self, argv: list[str]) -> int:
        """Run the command that the arguments name. Returns its exit code; lets only interrupts out."""
        before = logging.getLogger().level
        try:
            code = self._run(argv)
            if self.stdout.closed:  # by the pager of the help, when the reader of the help has closed the pipe
                code = exit_codes.CLOSED_PIPE
            else:
                # Flush here: an error at the interpreter's exit would not change the exit code.
                self.stdout.flush()
        except BrokenPipeError:
            code = exit_codes.CLOSED_PIPE
        except PubSubError as error:
            code = self._report(error, str(error), exit_codes.code_of(error))
        except OSError as error:
            code = self._report(error, f"a file or the output cannot be used: {error}", exit_codes.FILE)
        except Exception as error:  # noqa: BLE001 - a user sees a sentence; the traceback is for --debug
            hint = "" if self.options.debug else "run the command with --debug and report its output"
            code = self._report(error, internal_error(error, hint), exit_codes.INTERNAL_ERROR)
        finally:
            if self._handler is not None:
                logging.getLogger().removeHandler(self._handler)
                logging.getLogger().setLevel(before)
        return code

    def run_subcommand(self, argv: list[str]) -> int:
        """Find and run the command. Unlike cliff's method, this one raises errors: ``run`` maps them to exit codes."""
        if argv[0].startswith("-"):
            raise UsageError(self._not_global(argv[0].partition("=")[0]))  # its value may be a password
        about = argv[1:2] if argv[0] == "help" else []
        for named in (argv, argv[1:] if about else []):
            words = list(itertools.takewhile(lambda each: not each.startswith("-"), named))
            if words:
                self._must_know(words)
        kind, found, rest = self.command_manager.find_command(argv)
        command = kind(self, self.options, cmd_name=found)
        return command.run(command.get_parser(f"{NAME} {found}").parse_args(rest))

    def _not_global(self, option: str) -> str:
        from pubsub_lib.cli.completion import options_of

        names = [name for each in options_of(self) for name in each.names]
        near = difflib.get_close_matches(option, names, 1)
        hint = f"did you mean {near[0]}?" if near else "the options of a command follow its name"
        return f"{option} is no option of {NAME} itself; {hint}"

    def _must_know(self, words: list[str]) -> None:
        try:
            self.command_manager.find_command(words)
        except ValueError:
            names = self.command_manager.get_command_names()
            group = [each for each in names if each.startswith(f"{words[0]} ")]
            name = " ".join(words[:2]) if group else words[0]
            near = difflib.get_close_matches(name, group or names, 1)
            if group and not near:
                raise UsageError(f"there is no command {name!r}; the commands are {', '.join(sorted(group))}") from None
            hint = f"did you mean {near[0]!r}?" if near else f"see {NAME} --help"
            raise UsageError(f"there is no command {name!r}; {hint}") from None

    def _run(self, argv: list[str]) -> int:
        try:
            self.options, rest = self.parser.parse_known_args(argv)
            self.configure_logging()
            if rest:
                return self.run_subcommand(["help", *rest] if self.options.deferred_help else rest)
            if not self.options.deferred_help:
                # The help goes to stderr, because a script must not take it for the result of a command.
                PubsubDb(stdout=self.stderr).run([*argv, "--help"])
                return exit_codes.USAGE
            help_pages.print_program(self)
        except SystemExit as ended:  # argparse
            return ended.code if isinstance(ended.code, int) else exit_codes.OK
        return exit_codes.OK

    def _report(self, error: BaseException, sentence: str, code: int) -> int:
        if self._handler is None:  # the error precedes the options, for example that of "--version >/dev/full"
            self.configure_logging()
        LOG.error("%s", " ".join(sentence.split()), exc_info=error if self.options.debug else None)
        return code


class _Line(logging.Formatter):
    """Puts the program's name before every message, as users of a shell expect."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__(f"{NAME}: %(message)s")
        self._tracebacks = tracebacks

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return super().formatException(ei) if self._tracebacks else ""

    def format(self, record: logging.LogRecord) -> str:
        # A message may contain a key or a file name, so control characters are escaped; a traceback keeps its lines.
        return "\n".join(printable(line) for line in super().format(record).rstrip("\n").split("\n"))
