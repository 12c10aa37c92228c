"""The common parts of the commands of ``tools/bench``: their options, their output, and their exit codes."""

import argparse
import importlib
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec
from _command_line import Parser

from pubsub_lib.errors import PubSubError

PROG: Final = "tools/bench"
MET, MISSED, NOT_RUN = 0, 1, 3
EXIT_CODES: Final = (
    "exit codes: 0 every requirement is met; 1 a requirement is missed; 2 invalid option; "
    "3 the run failed (database, disk, a process); 130 interrupted"
)


class OptionsError(PubSubError):
    """The options do not fit together, or not this machine; exit code 2."""


class Finding(msgspec.Struct, frozen=True):
    """One result of a measurement. ``text``: what the table format prints."""

    name: str
    text: str
    figures: Mapping[str, Any] = {}
    met: bool = True
    """False when a requirement is missed."""


Findings = Generator[Finding, None, None]


class Command(Protocol):
    """A module with a measurement."""

    def options(self, parser: Parser) -> None:
        """Add the options to the parser."""

    def measure(self, options: argparse.Namespace) -> Findings:
        """Measure. Findings are printed as they come. Raises OptionsError, PubSubError, OSError."""


COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "anchor-cost": ("_measurements.anchor_cost", "what a replica's comparison with the store costs it"),
    "audit": ("_bench_audit.command", "the audit of many messages, compared with a bare chain of its joins and counts"),
    "churn": ("_measurements.churn", "for how long clients that come and go silence the others of a publisher"),
    "commit-cost": ("_measurements.commit_cost", "the cost of a commit while the transport refuses hellos"),
    "fingerprints": ("_measurements.fingerprints", "the cost of one object's fingerprint with several functions"),
    "herd": ("_measurements.herd", "a restart of everything at once: database, relays and replicas; and with standbys"),
    "idle-cost": ("_measurements.idle_cost", "the cost of a publisher service while nothing is written"),
    "joined": ("tests.unit.audit.joined_command", "random runs of real trackers, journals and stores, audited"),
    "lake": ("_measurements.lake", "an append to a full day of the audit's lake, and the report of that day"),
    "load": ("_measurements.load", "pubsub-db load of the full routing table, killed and run again"),
    "objects": ("_measurements.objects", "memory and collection time of one cached object in several forms"),
    "path": ("_measurements.path", "processor time of one change at each step of its path"),
    "reconnection": ("_measurements.reconnection", "how soon a lost change arrives after a reconnection"),
    "relay-kills": ("_measurements.relay_kills", "what a relay that is killed, or drained, costs what is below it"),
    "relays": ("_measurements.relays", "relays that are killed, cut off or stopped, and the latency of one of them"),
    "rot": ("_measurements.rot", "how soon damaged objects are repaired, and how many objects that reads"),
    "settle": ("_measurements.settle", "how long many replicas of many topics take to settle, and their idle cost"),
    "stress": ("_measurements.stress", "concurrent writers against each database, with a check of all data"),
    "trace": ("_measurements.trace", "the calls of one set from its transaction to a replica's handler"),
}
"""Name → its module, and its line of help."""


def listed() -> str:
    """The commands with their help, for the help of ``tools/bench``."""
    return "\n".join(f"  {name:14}{text}" for name, (_, text) in COMMANDS.items())


def load(name: str) -> Command:
    """The command's module. Only the one that runs is imported, because some need Spark or database servers."""
    return cast("Command", importlib.import_module(COMMANDS[name][0]))


def run(name: str, arguments: Sequence[str]) -> int:
    """Parse the arguments, measure, and print the findings. Returns the exit code."""
    command = load(name)
    parser = Parser(prog=f"{PROG} {name}", description=f"Measures {COMMANDS[name][1]}.", epilog=EXIT_CODES)
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings to this file")
    command.options(parser)
    options = parser.parse_args(arguments)
    load_before, found = os.getloadavg()[0], []
    try:
        with closing(command.measure(options)) as findings:  # an interrupt ends its processes at once
            for finding in findings:
                found.append(finding)
                if options.format == "table":
                    print(finding.text, flush=True)
        text = as_json(name, load_before, found)
        if options.json is not None:
            options.json.write_text(text + "\n", encoding="utf-8")
    except OptionsError as error:
        parser.error(str(error))
    except (PubSubError, OSError) as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_RUN
    if options.format == "json":
        print(text)
    return MET if all(each.met for each in found) else MISSED


def as_json(name: str, load_before: float, found: Sequence[Finding]) -> str:
    """One indented JSON object: the command, the machine's load before it, whether all is met, and the findings."""
    findings = [{"name": each.name, "met": each.met, **each.figures} for each in found]
    whole = {"command": name, "load": round(load_before, 1), "met": all(each.met for each in found)}
    return msgspec.json.format(msgspec.json.encode({**whole, "findings": findings}), indent=2).decode()


def log(text: str) -> None:
    """Print progress on standard error."""
    print(text, file=sys.stderr, flush=True)
