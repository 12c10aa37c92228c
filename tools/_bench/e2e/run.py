"""The case: every cell in turns of all sides."""

import statistics
from collections.abc import Sequence

import msgspec

from _bench.e2e import disk, figures, plan
from _bench.e2e.figures import EndToEnd
from _bench.e2e.measured import Measured, measure
from _bench.e2e.peers import NAMES, POSTGRESQL
from _bench.e2e.plan import Cell
from _bench.e2e.sides import Sides, opened
from _bench.measure import Log, Row
from pubsub_lib.errors import PubSubError

OURS = ("sqlite", POSTGRESQL, "postgresql-host")


class Options(msgspec.Struct, frozen=True):
    """How the case runs. ``peers``: of :data:`NAMES`; None: all, and in a quick run those that are local.
    ``matrix``: every number of writers, changes and watchers, unpaced and paced.
    """

    rounds: int = 5
    quick: bool = False
    matrix: bool = False
    peers: Sequence[str] | None = None

    @property
    def names(self) -> Sequence[str]:
        """The names that apply."""
        return ((POSTGRESQL,) if self.quick else NAMES) if self.peers is None else self.peers


class Result(msgspec.Struct, frozen=True):
    """The rows with a required ratio, and all figures."""

    rows: Sequence[Row]
    details: EndToEnd


def run(options: Options, log: Log) -> Result:
    """Measure. The cells without a requirement are measured in one round. Raises PubSubError when one of our sides
    fails; a peer that fails is left out from then on, with its error.
    """
    results: dict[tuple[Cell, str], list[Measured]] = {}
    syncs = []
    with opened(options.names, log) as sides:
        facts = [side.facts for side in sides.all.values()]
        cells = [(cell, options.rounds) for cell in plan.judged(options.quick)]
        cells += [(cell, 1) for cell in plan.others(options.quick, options.matrix)]
        for cell, rounds in cells:
            for number in range(rounds):
                syncs.append(disk.syncs())
                turn(sides, cell, number, results, log)
    shown = [figures.figure(cell, name, rounds) for (cell, name), rounds in results.items()]
    return Result(
        figures.rows(results, options.rounds), EndToEnd(statistics.median(syncs), facts, sides.left_out, shown)
    )


def turn(sides: Sides, cell: Cell, number: int, results: dict[tuple[Cell, str], list[Measured]], log: Log) -> None:
    """One round of all sides that this cell has, each time with another one first."""
    names = [name for name, side in sides.all.items() if cell.writers >= side.facts.least_writers]
    first = number % len(names)
    for name in names[first:] + names[:first]:
        log(f"{cell.short}: round {number + 1}, {name}")
        try:
            results.setdefault((cell, name), []).append(measure(sides.all[name], cell))
        except (PubSubError, OSError) as error:
            if name in OURS:
                raise
            sides.leave_out(name, error)
            if not results[cell, name]:
                del results[cell, name]
