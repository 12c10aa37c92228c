"""``pubsub-audit report`` of a lake: its options and its files."""

import argparse
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pubsub_lib.audit.lake import output
from pubsub_lib.audit.lake.days import Report, report
from pubsub_lib.audit.lake.page import save_page
from pubsub_lib.audit.lake.tables import today
from pubsub_lib.audit.option_types import positive
from pubsub_lib.errors import ConfigError

DAYS: Final = 30
"""Number of days that are shown when the command line does not give both ends."""
MAX_DAYS: Final = 3660
_PLACES: Final = {"from": "first", "to": "last"}


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options that only the report of a lake has."""
    command.add_argument(
        "--from", dest="first", type=day, metavar="DAY", help=f"first day (UTC); default: {DAYS} days up to --to"
    )
    command.add_argument("--to", dest="last", type=day, metavar="DAY", help="last day, included; default: today")
    command.add_argument("--csv", type=Path, metavar="FILE", help="also write a row for each day to this file")


def add_append_options(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that append to a lake."""
    command.add_argument(
        "--append", type=Path, metavar="FOLDER", help="also add the small tables to this folder, by day"
    )
    command.add_argument(
        "--keep-days", type=positive, metavar="N", help="remove days from the folder of --append: all but the last N"
    )


def day(text: str) -> date:
    """A day in ISO 8601. Raises ArgumentTypeError."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2026-11-26") from None


def check_append_options(options: argparse.Namespace) -> None:
    """Raise ConfigError when the options that append do not fit each other."""
    if options.keep_days is not None and options.append is None:
        raise ConfigError("--keep-days needs --append, whose folder it limits")
    if options.append and options.out:
        lake, out = options.append.resolve(), options.out.resolve()
        if out in (lake, *lake.parents):
            raise ConfigError(f"--append {options.append} is not outside of --out {options.out}; name another folder")


def check_not_given(options: argparse.Namespace) -> None:
    """Raise ConfigError when an option of a lake is given for a folder of ``--out``."""
    given = [f"--{name}" for name in ("from", "to", "csv") if getattr(options, _PLACES.get(name, name))]
    if given:
        raise ConfigError(f"{options.folder} is not a folder of --append, as {', '.join(given)} requires")


def run(options: argparse.Namespace, now: date | None = None) -> Report:
    """Read the lake, and write the files that the options name. ``now``: default today (UTC). Raises ConfigError."""
    now = now or today()
    last = options.last or now
    first = options.first or last - timedelta(days=min(DAYS, last.toordinal()) - 1)
    if first > last:
        raise ConfigError(f"--from {first} is after --to {last}; give the earlier day to --from")
    if (last - first).days >= MAX_DAYS:
        raise ConfigError(f"{first} to {last} has more than {MAX_DAYS} days; give fewer")
    found = report(options.folder, first, last, now, since_begin=options.first is None)
    if options.page:
        save_page(found, options.page)
    if options.csv:
        output.save_csv(found.days, options.csv)
    return found
