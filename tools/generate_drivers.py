#!/usr/bin/env python3
"""Write docs/drivers.md from what the installed drivers declare: ``tools/generate_drivers.py [--check]``.

With ``--check`` nothing is written; exit status 1 tells that the page is stale.
"""

import sys

from _generated import ROOT, our_drivers, write_or_check

from pubsub_lib.loader import driver_table

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


def page() -> str:
    """The whole page."""
    return TEXT.format(table=driver_table(our_drivers()).strip())


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
