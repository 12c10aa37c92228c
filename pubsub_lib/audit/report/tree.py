"""The tree of domains with relays: who listened to whom, and the verdicts of each hop (docs/audit.md, "Tables").

The rows are few, one for each publisher and replica, so they are made in this process: from counts, and from records
that name publishers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.summary import HOP_FAULTS, LAST_SEEN
from pubsub_lib.audit.report.windows import SUMS, sums
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.rules.stretches import stretches
from pubsub_lib.audit.spark.arrow_tables import small

COUNTS: Final = (*SUMS, *HOP_FAULTS, *LAST_SEEN)
_HOP: Final = ("domain", "service", "name")
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in (*_HOP, "service_role", "name_role")),
        *((name, pa.int64()) for name in ("arrivals", "came", "left")),
        ("current", pa.bool_()),
        *((name, pa.int64()) for name in COUNTS),
    ]
)
_TYPES: Final = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean"}

Hop = tuple[str, str, str]
"""Domain, publisher's name, replica's name."""


class Seen(msgspec.Struct, frozen=True):
    """What journals show of the domains with relays.

    ``counted``: the columns of a hop and ``COUNTS``. ``runs``: domain, side, name and polls of each run. ``parents``:
    the ``parent`` records. ``answered``: the hops with a hello reply.
    """

    counted: Sequence[Row]
    runs: Sequence[Row]
    parents: Sequence[Row]
    answered: Sequence[Row]


class Listening(msgspec.Struct, frozen=True):
    """How a replica with parents listened to one: how often it came, when it came last, and left then (None: never)."""

    arrivals: int
    came: int
    left: int | None


def tree(tables: Tables, grains: DataFrame) -> DataFrame:
    """One row per hop, those to relays first, then those with faults. Blocks; without relays nothing is computed.
    ``grains``: see :func:`pubsub_lib.audit.report.windows.grains`.
    """
    found = rows(_seen(tables, grains)) if tables.relayed else []
    if not found:
        nothing = [F.lit(None).cast(_TYPES[each.type]).alias(each.name) for each in _SCHEMA]
        return tables.domains.limit(0).select(*nothing)
    return small(grains.sparkSession, found, _SCHEMA)


def _seen(tables: Tables, grains: DataFrame) -> Seen:
    there = F.col("domain").isin(*sorted(tables.relayed))
    number = F.col("rows")
    faults = [_count(number, F.col("verdict") == name, name) for name in HOP_FAULTS]
    last_seen = [_count(number, F.col("blame").isin(*blames), name) for name, blames in LAST_SEEN.items()]
    counted = grains.filter(there).groupBy(*_HOP).agg(*sums(number), *faults, *last_seen)
    events = tables.events.filter(there & (F.col("side") == "replica"))
    parents = events.filter(F.col("kind") == "parent")
    answered = events.filter((F.col("kind") == "hello") & (F.col("service") != ""))
    return Seen(
        counted.collect(),
        tables.runs.filter(there).select("domain", "side", "name", "polls").collect(),
        parents.select("domain", "run", "name", "number", "wall", "service", "uuid").collect(),
        answered.select(*_HOP).distinct().collect(),
    )


def _count(number: Column, condition: Column, name: str) -> Column:
    return F.sum(F.when(condition, number).otherwise(F.lit(0))).alias(name)


def rows(seen: Seen) -> list[dict[str, Any]]:
    """The rows of the table, in its order."""
    counts: dict[Hop, dict[str, int]] = {_hop(row): {name: row[name] for name in COUNTS} for row in seen.counted}
    listened, current = _listened(seen.parents)
    children = {(domain, name) for domain, _, name in listened}
    sides = defaultdict[tuple[str, str], set[str]](set)
    polling = set()
    for run in seen.runs:
        sides[run["domain"], run["name"]].add(run["side"])
        if run["side"] == "replica" and run["polls"]:
            polling.add((run["domain"], run["name"]))
    others = children | polling  # the driver of a polling replica answers itself
    answered = (_hop(row) for row in seen.answered if (row["domain"], row["name"]) not in others)
    found = []
    for domain, service, name in {*counts, *listened, *answered}:
        hop, who = (domain, service, name), (domain, name)
        role = "relay" if "relay" in sides[who] else "polling" if who in polling else "replica"
        of_parent = listened.get(hop)
        found.append(
            {
                **dict(zip(_HOP, hop, strict=True)),
                "service_role": next((each for each in _PUBLISHING if each in sides[domain, service]), ""),
                "name_role": role,
                "arrivals": None if of_parent is None else of_parent.arrivals,
                "came": None if of_parent is None else of_parent.came,
                "left": None if of_parent is None else of_parent.left,
                "current": hop in current if who in children else None,
                **counts.get(hop, dict.fromkeys(COUNTS, 0)),
            }
        )
    return sorted(found, key=_place)


_PUBLISHING: Final = ("relay", "service", "writer")


def _hop(row: Row) -> Hop:
    return row["domain"], row["service"], row["name"]


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Relays first; then the hops with the most faults, and with the most changes that messages did not bring."""
    faults = sum(row[each] for each in ("lost", "unknown", *HOP_FAULTS))
    return row["domain"], row["name_role"] != "relay", -faults, -row["repaired"], row["service"], row["name"]


def _listened(parents: Iterable[Row]) -> tuple[dict[Hop, Listening], set[Hop]]:
    """How replicas with parents listened to each of these, and the hops on which they listen at the end."""
    stays = defaultdict[Hop, list[tuple[int, int | None]]](list)
    latest: dict[tuple[str, str], tuple[int, int, Hop]] = {}
    for domain, name, service, came, left in _stays(parents):
        hop = (domain, service, name)
        stays[hop].append((came, left))
        ends = (came, left is None, hop)
        latest[domain, name] = max(latest.get((domain, name), ends), ends)
    listened = {}
    for hop, each in stays.items():
        came, left = max(each, key=lambda stay: stay[0])
        listened[hop] = Listening(len(each), came, left)
    return listened, {hop for _, stayed, hop in latest.values() if stayed}


def _stays(parents: Iterable[Row]) -> Iterator[tuple[str, str, str, int, int | None]]:
    """Domain, replica, parent, begin and end (None: until the run's end) of each time in which one listened."""
    of_runs = defaultdict[tuple[str, str, str], list[Row]](list)
    for row in parents:
        of_runs[row["domain"], row["run"], row["name"]].append(row)
    for (domain, _, name), records in of_runs.items():
        for each in stretches(sorted(records, key=lambda row: row["number"])):
            yield domain, name, each.service, each.named["wall"], None if each.end is None else each.end["wall"]
