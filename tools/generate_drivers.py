#!/usr/bin/env python3
"""Write docs/drivers.md from what the installed drivers declare: ``tools/generate_drivers.py [--check]``.

With ``--check`` nothing is written; exit status 1 tells that the page is stale.
"""

import configparser
import sys
from pathlib import Path

from pubsub_lib.loader import driver_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "drivers.md"
TEXT = """\
# Drivers

Which transport carries the changes is a matter of configuration (`pub_sub_driver`, `Settings.driver`); the promise does
not depend on it. This table is generated from what the drivers declare (`tools/generate_drivers.py`); the loader
refuses, by name, one that lacks what a configuration needs.

{table}

`memory` is for tests and for programs of one process; its link can be made to drop, repeat, reorder, delay and damage.
`db_polling_pubsub_driver` needs nothing but the database: it looks whether the store's point moved, at an interval that
adapts between `fastest` and `slowest`, and reads only what changed.
`zmq_pubsub_multiproc_driver` is the hop from the worker processes of a host to its publisher service
(`pub_sub_multiproc_driver`); no replica listens to it.
"""


def our_drivers() -> list[str]:
    """The drivers of this project; the environment may hold others."""
    registry = configparser.ConfigParser()
    registry.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = registry["options.entry_points"]["pubsub_lib.drivers"].split("\n")
    return sorted(line.partition("=")[0].strip() for line in lines if line.strip())


def main(arguments: list[str]) -> int:
    """Write or compare the page; the exit status."""
    text = TEXT.format(table=driver_table(our_drivers()).strip())
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is stale; run tools/generate_drivers.py", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
