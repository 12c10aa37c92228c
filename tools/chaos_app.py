"""``tools/chaos``: services, workers and replicas under random faults; then every replica is compared with the store,
and the journals of all processes are audited.

::

    tools/chaos --minutes 5                        # SQLite; the seed is printed
    tools/chaos --minutes 5 --seed 7               # the same faults as each other run with this seed
    tools/chaos --minutes 30 --database postgresql # also kills and pauses the database server
    tools/chaos --minutes 5 --driver nats          # over a NATS server, which is killed and paused, too
    tools/chaos --minutes 5 --full-disks           # replicas lose records of their journals, which the audit must see
    tools/chaos --minutes 5 --seed 7 --show-plan   # print the faults, and start nothing

All files are in a temporary folder, which is removed afterwards. The tables (or JSON) go to stdout, progress to stderr.
"""

import argparse
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import _databases
import msgspec
from _chaos import report as reports
from _chaos.draw import drawn
from _chaos.plan import DEFAULT, DISK, KINDS, LIE, ZMQ, Cast, Kind, Plan
from _chaos.run import BOUND, Options, Run
from _chaos.starting import Storm
from _chaos.striking import LIBFAKETIME, missing
from _command_line import Parser, at_least
from _routes.command import in_folder
from _routes.drivers import DRIVERS
from _routes.progress import Progress
from rich.console import Console

PROG = "tools/chaos"
DATABASES = ("sqlite", "postgresql")
MAX_TOPICS = 10_000
EXIT_CODES = (
    "exit codes: 0 every check passed; 1 a replica's contents differ from the store's, or a change or an acknowledged "
    "transaction is missing; 2 invalid option; 3 the run failed (database, disk, Java, a process that did not start or "
    "settle); 4 the audit found what no planned fault explains; 5 a process ended by itself; 130 interrupted. Of "
    "several failed checks the first of 1, 4, 5 counts"
)


def minutes(text: str) -> float:
    """An option's type."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.05 <= found <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes from 0.05 to 10000")
    return found


def kinds(text: str) -> tuple[str, ...]:
    """An option's type: kinds of faults, separated by commas."""
    names = tuple(text.split(","))
    for name in names:
        if name not in KINDS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(KINDS)}")
    return names


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    about = (
        "Runs services, workers and replicas in processes of their own under random faults, compares every replica "
        "with the store at the end, object by object, and audits the journals. Kinds of faults: "
        + "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    )
    parser = Parser(prog=PROG, description=about, epilog=EXIT_CODES)
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table", help="of the report on stdout")
    parser.add_argument("--minutes", type=minutes, default=5.0, metavar="M", help="how long workers write (5)")
    parser.add_argument(
        "--driver",
        choices=tuple(DRIVERS),
        default=ZMQ,
        help="how services send; a broker, or PostgreSQL for pgnotify, is started for the run, and is a victim (zmq)",
    )
    parser.add_argument(
        "--database",
        choices=DATABASES,
        help="private, in a temporary folder (sqlite; with --driver pgnotify postgresql)",
    )
    add_faults(parser)
    add_checks(parser)
    options = parser.parse_args(arguments)
    check(parser, options)
    return options


def add_faults(parser: Parser) -> None:
    """The options that decide which faults strike."""
    storm = Storm()
    parser.add_argument("--seed", type=at_least(0), metavar="S", help="of the faults (default: random, printed)")
    parser.add_argument("--faults", type=at_least(1), default=40, metavar="N", help="faults per minute (40)")
    parser.add_argument(
        "--only",
        type=kinds,
        default=DEFAULT,
        metavar="KIND,…",
        help="only these kinds (default: all but disk, lie and clock)",
    )
    parser.add_argument(
        "--full-disks",
        action="store_true",
        help="also the kind disk: the audit must give the verdict unknown for what the lost records would have shown, "
        "and no other fault (exit code 32)",
    )
    parser.add_argument(
        "--lies",
        action="store_true",
        help="also the kind lie: replicas must end equal, and the audit must find what was sent and never committed",
    )
    parser.add_argument(
        "--storm-topics",
        type=at_least(1),
        default=storm.topics,
        metavar="N",
        help=f"topics of each subscriber of a storm, up to {MAX_TOPICS} ({storm.topics})",
    )
    parser.add_argument(
        "--storm-subscribers",
        type=at_least(1),
        default=storm.subscribers,
        metavar="N",
        help=f"subscribers of a storm ({storm.subscribers})",
    )
    parser.add_argument(
        "--libfaketime",
        type=Path,
        default=next(iter(LIBFAKETIME), None),
        metavar="FILE",
        help="the library for wrong clocks (default: that of Debian's package)",
    )
    parser.add_argument("--show-plan", action="store_true", help="print the planned faults, and start nothing")


def add_checks(parser: Parser) -> None:
    """The options of the checks at the end."""
    parser.add_argument(
        "--bound",
        type=at_least(1),
        default=BOUND,
        metavar="N",
        help=f"seconds within which a change must be in every replica, else the audit calls it late ({BOUND})",
    )
    parser.add_argument("--no-audit", action="store_true", help="do not audit; Java is then not needed")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="a new folder for the tables of the audit; the files of a failed run are kept in FOLDER-run",
    )
    parser.add_argument(
        "--sabotage",
        action="store_true",
        help="corrupt one object in the memory of replica-1 at the end: the comparison must find it",
    )


def check(parser: Parser, options: argparse.Namespace) -> None:
    """Set the database, and end with an error when options do not fit together."""
    needed = DRIVERS[options.driver].database
    if needed != DATABASES[0] and options.database not in (None, needed):
        parser.error(f"--driver {options.driver} needs --database {needed}")
    options.database = options.database or needed
    if options.full_disks:
        options.only = (*options.only, DISK)
    if options.lies:
        options.only = (*options.only, LIE)
    if options.no_audit and options.out is not None:
        parser.error("--out is an option without --no-audit")
    if options.storm_topics > MAX_TOPICS:
        parser.error(f"argument --storm-topics: {options.storm_topics} is more than {MAX_TOPICS}")
    if "clock" in options.only and not options.no_audit:
        parser.error("with the kind clock no audit is possible, because journals have wrong times; add --no-audit")


def left_out(options: argparse.Namespace, cast: Cast) -> dict[Kind, str]:
    """The chosen kinds of fault that this run cannot have, each with the reason."""
    lacking = missing(options.libfaketime)
    found = {kind: lacking[kind] for kind in options.only if kind in lacking}
    # The plan has no such faults, whatever the machine has.
    return found | {kind: cast.lack(kind) for kind in options.only if cast.lack(kind)}


def planned(options: argparse.Namespace) -> Plan:
    """The plan of the run: it depends on the options alone, when they have a seed."""
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    seconds = 60.0 * options.minutes
    cast = Cast(server=options.database != "sqlite", driver=options.driver)
    number = round(options.faults * options.minutes)
    return Plan(seed, seconds, cast, tuple(drawn(seed, seconds, number, cast, options.only)))


def show_plan(plan: Plan, shown: str) -> None:
    """Print the faults of a plan."""
    if shown == "json":
        print(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
        return
    print(f"seed {plan.seed}: {len(plan.faults)} faults in {plan.seconds:g} s")
    for fault in plan.faults:
        print(f"{fault.at:10.3f} s  {fault.kind:<8} {fault.victim:<12} for {fault.seconds:.3f} s")


def execute(options: argparse.Namespace, plan: Plan, folder: Path) -> int:
    """Run the plan, print its report, and return the exit code. Raises PubSubError, OSError."""
    console = Console(stderr=True)
    console.print(f"seed {plan.seed}: {len(plan.faults)} faults planned", highlight=False)
    given = Options(
        database=options.database,
        audited=not options.no_audit,
        bound=options.bound,
        results=options.out,
        sabotage=plan.cast.replica_names[0] if options.sabotage else "",
        storm=Storm(options.storm_subscribers, options.storm_topics),
        faketime=options.libfaketime,
        left_out=left_out(options, plan.cast),
    )
    with _databases.opened(options.database, folder) as database:
        report = Run(plan, given, database, folder, Progress(console)).execute()
    if options.format == "json":
        print(reports.as_json(report))
    else:
        reports.show(report, Console())
    broken = report.broken()
    for _, sentence in broken:
        print(f"{PROG}: {sentence}", file=sys.stderr)
    return broken[0][0] if broken else reports.KEPT


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    options = parse(arguments)
    plan = planned(options)
    if options.show_plan:
        show_plan(plan, options.format)
        return reports.KEPT
    return in_folder(PROG, lambda folder: execute(options, plan, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
