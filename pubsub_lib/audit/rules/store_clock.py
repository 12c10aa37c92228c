"""The clock of the host that read the store (audit-verdicts.md, "Time of the store")."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.clocks import Clock, Clocks, Stretch, first_monos
from pubsub_lib.audit.settings import MEASURED

Shifts = dict[tuple[str, str], list[tuple[int, int | None, int]]]
"""Per domain and run: see ``Clocks.shifts``."""


def shifts(events: DataFrame, clocks: Mapping[str, Mapping[Stretch, Clock]], found: Mapping[str, Clocks]) -> Shifts:
    """The shifts of the store's runs whose clock no participant has. Blocks for a small job if there are any."""
    alone: dict[tuple[str, str], int] = {}
    for domain, of_domain in clocks.items():
        there = first_monos(of_domain)
        of_store = [each for each in of_domain if not each.takes_part]
        known = {each.run for each in of_store if of_domain[each] in there}
        for each in of_store:
            if each.run not in known:
                alone[domain, each.run] = min(each.number, alone.get((domain, each.run), each.number))
    if not alone:
        return {}
    measured = events.filter((F.col("kind") == "changelog") & (F.col("peer") == MEASURED))
    shown: Shifts = {}
    for row in measured.select("domain", "run", "wall", "cause", "count").collect():
        key = row["domain"], row["run"]
        if key in alone:
            ahead = row["count"] + _ahead(found[row["domain"]], row["cause"], row["wall"] - row["count"])
            shown[key] = [(alone[key], None, ahead)]
    return shown


def _ahead(clocks: Clocks, name: str, time: int) -> int:
    """By how much the clock of a name was ahead at a time by that clock."""
    of_name = clocks.of_names().get(name, [])
    until = [ahead for high, ahead in of_name if high >= time]
    return until[0] if until else of_name[-1][1] if of_name else 0
