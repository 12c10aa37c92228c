"""``tools/bench``: small cases, each measured in turns with its peer in the same run; medians and ratios.

::

    tools/bench                                  # all cases but drivers and e2e, 5 rounds each
    tools/bench --case burst10 --rounds 9
    tools/bench --json bench.json                # the table, and the figures in a file
    tools/bench --quick -f json                  # checks that everything arrives; its figures are not meaningful
    tools/bench --case drivers                   # drivers over a broker: downloads servers
    tools/bench --case e2e                       # beside etcd, OVSDB, NATS, Redis and LISTEN/NOTIFY: downloads them
    tools/bench settle --replicas 5              # a command measures one thing; tools/bench --help lists the commands

The machine should be nearly idle meanwhile: both sides of a ratio run on the same machine, but a busy machine slows
several processes down more than one. docs/performance.md describes the measurements and their peers.
"""

import sys
from collections.abc import Sequence

from _children import ROOT
from _command_line import Parser
from _measurements import command
from _measurements.command import COMMANDS, PROG
from _termination import run


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    if arguments and arguments[0] in COMMANDS:
        return command.run(arguments[0], arguments[1:])
    if arguments and not arguments[0].startswith("-"):
        Parser(prog=PROG).error(f"there is no command {arguments[0]!r}; the commands are {', '.join(COMMANDS)}")
    from _bench import ratios  # a command must not import them: the load command measures its children's memory

    return ratios.main(arguments)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # tests are not installed; a command runs one of their modules
    sys.exit(run(PROG, lambda: main(sys.argv[1:])))
