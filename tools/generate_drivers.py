#!/usr/bin/env python3
"""Write docs/drivers.md from what the installed drivers declare: ``tools/generate_drivers.py [--check]``.

With ``--check`` nothing is written; the exit status is 1 when the page is stale.
"""

import sys

from _generated import ROOT, our_drivers, write_or_check

from pubsub_lib.loader import driver_table

PAGE = ROOT / "docs" / "drivers.md"
TEXT = """\
# Drivers

The configuration selects the transport (`pub_sub_driver`, `Settings.driver`). The guarantees do not
depend on it. `tools/generate_drivers.py` generates this table from the capabilities that the drivers
declare. The loader rejects a driver that lacks a needed capability, and names the capability.

{table}

`memory` is for tests and for programs with one process. It can drop, duplicate, reorder, delay and
damage messages. `db_polling_pubsub_driver` needs only the database: it polls the store's point, at an
interval that adapts between `fastest` and `slowest`, and reads only new changes.
`zmq_pubsub_multiproc_driver` is the hop from the worker processes of a host to its publisher service
(`pub_sub_multiproc_driver`); replicas do not use it.
"""


def page() -> str:
    """The whole page."""
    return TEXT.format(table=driver_table(our_drivers()).strip())


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
