#!/usr/bin/env python3
"""Write the manual pages in etc/man from the parsers of the commands: ``tools/generate_man.py [--check]``.

With ``--check`` nothing is written; the exit status is 1 when a page is stale.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from _generated import ROOT, write_or_check

from pubsub_lib.audit import command_line
from pubsub_lib.audit.arguments import PROGRAM as AUDIT
from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.cli.completion import arguments_of
from pubsub_lib.service import main as service
from pubsub_lib.version import __version__

FOLDER = ROOT / "etc" / "man"
_SPECIAL: Final = str.maketrans({"\\": r"\e", "-": r"\-"})

PAGES: Final = (("publisher-service", 8), ("pubsub-audit", 1), ("pubsub-db", 1))
ENVIRONMENT: Final = (
    "OS_<GROUP>__<OPTION>",
    "An option of the INI file, for example OS_PUBSUB__STORE_URL. It takes precedence over the file.",
)
INI: Final = ("/etc/pubsub_lib/pubsub_lib.conf", "The INI file, also of workers and replicas.")
OF_AUDIT: Final = (
    "A sum: 1 loss; 2 corrupt, invented or misrouted messages; 4 divergence (a replica differs from the store); 8 "
    "late; 16 policy (applied twice, or an older version); 32 missing evidence. 64 invalid command line or INI file; "
    "70 internal error; 130 Ctrl-C; 141 the output was closed; 143 SIGTERM."
)


class Part(msgspec.Struct, frozen=True):
    """A command with its options and arguments: the program, or one of its commands."""

    name: str
    about: str
    parser: argparse.ArgumentParser


class Page(msgspec.Struct, frozen=True):
    """One manual page."""

    name: str
    section: int
    program: Part
    commands: Sequence[Part]
    exit_codes: str
    files: Sequence[tuple[str, str]]
    signals: Sequence[tuple[str, str]] = ()

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.name}.{self.section}"


def escaped(text: str) -> str:
    """Plain text for groff, in one line. A dot or a quote at its beginning would be a macro."""
    line = " ".join(text.split()).translate(_SPECIAL)
    line = re.sub(r"[^ -~]", lambda found: rf"\[u{ord(found[0]):04X}]", line)
    return rf"\&{line}" if line.startswith((".", "'")) else line


def help_of(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help as ``--help`` shows it, with the values of its placeholders."""
    text = action.help or ""
    values = {**vars(action), "prog": parser.prog, "choices": ", ".join(map(str, action.choices or ()))}
    return text % values


def value_of(action: argparse.Action) -> str:
    """The placeholder of a value; "" without one."""
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    name = str(action.metavar or action.dest.upper())
    return {"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}.get(str(action.nargs), name)


def synopsis(part: Part, more: str = "") -> Iterator[str]:
    """The command with its options in brackets."""
    words = []
    for _, action in arguments_of(part.parser):
        value = rf"\fI{escaped(value_of(action))}\fR" if value_of(action) else ""
        flag = rf"\fB{escaped(action.option_strings[-1])}\fR" if action.option_strings else ""
        if isinstance(action, argparse._SubParsersAction):
            continue
        shown = " ".join(each for each in (flag, value) if each)
        words.append(f"[{shown}]" if flag and not action.required else shown)
    yield rf".B {escaped(part.name)}"
    yield from words
    if more:
        yield rf"\fI{more}\fR"


def listed(part: Part, left_out: frozenset[str] = frozenset()) -> Iterator[str]:
    """The options and arguments, an item each."""
    for _, action in arguments_of(part.parser):
        if isinstance(action, argparse._SubParsersAction) or left_out & set(action.option_strings):
            continue
        text = help_of(action, part.parser)
        if not action.option_strings and not text:
            continue  # TABLE and KEY need no explanation
        value = rf" \fI{escaped(value_of(action))}\fR" if value_of(action) else ""
        flags = ", ".join(rf"\fB{escaped(each)}\fR" for each in action.option_strings)
        yield ".TP"
        yield f"{flags}{value}".strip()
        yield escaped(text[:1].upper() + text[1:].rstrip(".") + ".")


def paragraphs(text: str) -> Iterator[str]:
    """A description; an empty line begins a paragraph."""
    for at, each in enumerate(re.split(r"\n\s*\n", text.strip())):
        if at:
            yield ".PP"
        yield escaped(each)


def items(title: str, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A section with an item for each pair."""
    if found:
        yield f".SH {title}"
    for name, text in found:
        yield from (".TP", rf"\fB{escaped(name)}\fR", escaped(text))


def common(commands: Sequence[Part]) -> frozenset[str]:
    """Options that several commands have with the same help: those of the output."""
    numbers: dict[tuple[tuple[str, ...], str], int] = {}
    for each in commands:
        for _, action in arguments_of(each.parser):
            key = (tuple(action.option_strings), help_of(action, each.parser))
            numbers[key] = numbers.get(key, 0) + 1
    return frozenset(name for (names, _), number in numbers.items() for name in names if number >= len(commands) / 2)


def text_of(page: Page) -> str:
    """The page for groff."""
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield r".\" Generated by tools/generate_man.py."
    yield f'.TH {page.name.upper()} {page.section} "" "pubsub_lib {__version__}" "pubsub_lib"'
    yield from (".SH NAME", rf"{escaped(page.name)} \- {escaped(page.program.about.rstrip('.'))}", ".SH SYNOPSIS")
    yield from synopsis(page.program, "COMMAND ..." if page.commands else "")
    yield from (".SH DESCRIPTION", *paragraphs(page.program.about), ".SH OPTIONS")
    yield from listed(page.program)
    shared = common(page.commands) if page.commands else frozenset()
    if page.commands:
        yield from (".SH COMMANDS", "The options of most commands are described once, after the commands.")
    for each in page.commands:
        yield f".SS {escaped(each.name)}"
        yield from paragraphs(each.about)
        yield from (".PP", *synopsis(Part(f"{page.name} {each.name}", "", each.parser)))
        yield from listed(each, shared)
        if each.parser.epilog:
            yield from (".PP", *paragraphs(each.parser.epilog))
    if shared:
        yield ".SH OPTIONS OF MOST COMMANDS"
        seen: set[str] = set()
        for each in page.commands:
            mine = {name for _, action in arguments_of(each.parser) for name in action.option_strings}
            yield from listed(each, frozenset(mine - (shared - seen)))
            seen |= mine & shared
    yield from (".SH EXIT STATUS", escaped(page.exit_codes.removeprefix("Exit codes: ")))
    yield from items("SIGNALS", page.signals)
    yield from items("FILES", page.files)
    yield from items("ENVIRONMENT", [ENVIRONMENT])
    yield ".SH SEE ALSO"
    yield ", ".join(rf"\fB{escaped(name)}\fR({section})" for name, section in PAGES if name != page.name)


def of_service() -> Page:
    """``publisher-service``."""
    parser = service._parser()
    return Page(
        service.PROGRAM,
        8,
        Part(service.PROGRAM, parser.description or "", parser),
        (),
        parser.epilog or "",
        [INI],
        [
            ("SIGTERM, SIGINT", "Send what workers have handed over, leave the directory, and end."),
            ("SIGHUP", "Read the INI file again: log levels and some intervals and bounds take effect."),
        ],
    )


def of_cli() -> Page:
    """``pubsub-db``."""
    app = PubsubDb()
    commands = []
    for name, _ in sorted(app.command_manager):
        kind, _, _ = app.command_manager.find_command(name.split())
        parser = kind(app, app.options).get_parser(name)
        commands.append(Part(name, parser.description or "", parser))
    program = Part("pubsub-db", app.parser.description or "", app.parser)
    return Page("pubsub-db", 1, program, commands, app.parser.epilog or "", [INI])


def of_audit() -> Page:
    """``pubsub-audit``."""
    parser = command_line.parser()
    (action,) = [each for _, each in arguments_of(parser) if isinstance(each, argparse._SubParsersAction)]
    about = {each.dest: each.help or "" for each in action._choices_actions}
    commands = [
        Part(name, f"{about[name][:1].upper()}{about[name][1:]}.", found) for name, found in action.choices.items()
    ]
    program = Part(AUDIT, parser.description or "", parser)
    return Page(AUDIT, 1, program, commands, OF_AUDIT, [INI])


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    FOLDER.mkdir(exist_ok=True)
    pages = (of_audit(), of_cli(), of_service())
    return max(write_or_check(FOLDER / page.file, text_of(page), arguments) for page in pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
