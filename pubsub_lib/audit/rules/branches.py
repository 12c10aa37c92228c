"""The trunk and the branches of domains with relays, each as a domain of its own (audit-verdicts.md, "Relays").

Each record of a run is in every *place* in which the run takes part. The trunk is the place with the domain's name.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import base_tables, intervals
from pubsub_lib.audit.rules.base_tables import FOREVER, HOSTS, RUN, SYNCS
from pubsub_lib.audit.rules.corrections import Overview
from pubsub_lib.audit.rules.shown_intervals import shown_intervals
from pubsub_lib.audit.rules.stretches import Stretch, stretches, unnamed
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.spark.settled import lookup, narrowed, settled

_SEPARATOR: Final = "\x1f"
"""Between the domain and the branch in the name of a place."""
_OF_RELAY: Final = f"{_SEPARATOR}relay{_SEPARATOR}"
_OF_OTHER: Final = f"{_SEPARATOR}other{_SEPARATOR}"
_ALL, _STRAY, _CHILD, _PUBLISHER, _SOURCE = "all", "stray", "child", "publisher", "source"
"""The part of a run in a place: its records as they are; a child in the trunk, where only messages that no parent sent
count; a child, or a publisher, in a branch; what a relay applied, and therefore has to send.
"""
_OF_RUN: Final = [("domain", pa.string()), ("run", pa.string())]
_TEXTS: Final = [(name, pa.string()) for name in ("place", "role", "branch")]
_RANGES: Final = pa.list_(pa.struct([(name, pa.int64()) for name in ("begin", "end", "until")]))
_PLACES: Final = pa.schema([*_OF_RUN, *_TEXTS, ("parents", pa.list_(pa.string())), ("unnamed", _RANGES)])
_NUMBERS: Final = [(f"of_{name}", pa.int64()) for name in ("begin", "named", "end", "end_wall", "end_mono")]
_STRETCHES: Final = pa.schema([*_OF_RUN, *_NUMBERS])


class Split(msgspec.Struct, frozen=True):
    """The records of all places, with the place in the column ``domain``; without relays as they were given.
    ``stretches``: None without relays.
    """

    rows: DataFrame
    events: DataFrame
    overview: DataFrame
    runs: DataFrame
    stretches: DataFrame | None = None

    def intervals(self, headless: frozenset[str]) -> DataFrame:
        """See :func:`pubsub_lib.audit.rules.intervals.intervals`. ``headless``: the domains with runs whose begin is
        missing.
        """
        tables = (self.events, self.rows, self.runs)
        shown = shown_intervals(*tables, self.overview, headless) if headless else None
        if self.stretches is None:
            return settled(intervals.intervals(*tables, shown=shown))
        found = settled(intervals.intervals(*tables, self._cut, shown))
        return settled(_continued(found, self.events, self.rows))

    def _cut(self, begun: DataFrame) -> DataFrame:
        """The part of each interval in each stretch in which it is open."""
        assert self.stretches is not None
        begin, end = F.col("of_begin"), F.col("of_end")
        apart = (begin >= F.col("end")) | (end <= F.col("begin"))
        joined = begun.join(lookup(self.stretches), RUN, "left").filter(~F.coalesce(apart, F.lit(False)))
        moved, left = begin > F.col("begin"), end < F.col("end")
        changed = {
            "begin": F.when(moved, begin).otherwise(F.col("begin")),
            "opened": F.greatest("opened", "of_named"),  # it ignores nulls
            "end": F.when(left, end).otherwise(F.col("end")),
            "drop_wall": F.when(left, F.col("of_end_wall")).otherwise(F.col("drop_wall")),
            "drop_mono": F.when(left, F.col("of_end_mono")).otherwise(F.col("drop_mono")),
        }
        return joined.withColumns(changed).select(*begun.columns)

    def domains(self, whole: DataFrame, settings: AuditSettings) -> DataFrame:
        """See :func:`pubsub_lib.audit.rules.base_tables.domains`, of the places. ``whole``: the same of the domains,
        whose windows are closed for all places at once.
        """
        if self.stretches is None:
            return whole
        found = base_tables.domains(self.runs, settings).drop("closed_until").withColumn("of", _domain())
        until = whole.select(F.col("domain").alias("of"), "closed_until")
        return settled(found.join(lookup(until), "of", "left").drop("of"))


def split(
    rows: DataFrame, events: DataFrame, overview: DataFrame, runs: DataFrame, known: Overview, settings: AuditSettings
) -> Split:
    """The records of all places. Without relays nothing is computed."""
    if not known.relayed:
        return Split(rows, events, overview, runs)
    spark = rows.sparkSession
    of_runs = defaultdict(list)
    naming = (F.col("kind") == "parent") | ((F.col("kind") == "interest") & (F.col("cause") == "relay"))
    narrow = events.filter(naming).select(*RUN, "number", "wall", "mono", "kind", "service", "uuid")
    for row in sorted(narrow.collect(), key=lambda row: row["number"]):
        of_runs[row["domain"], row["run"]].append(row)
    found = _Places(known.runs, of_runs, settings)
    places = lookup(small(spark, list(found.places()), _PLACES))
    placed = narrowed(_placed_rows(rows, places))
    return Split(
        placed,
        settled(_placed_events(events, places)),
        settled(base_tables.overview(placed)),
        settled(_placed_runs(runs, places)),
        small(spark, list(found.stretches()), _STRETCHES),
    )


class _Places:
    """Which run takes part where. ``of_runs``: the records of each run that name parents, and the relay of the run."""

    def __init__(
        self, runs: Iterable[Row], of_runs: Mapping[tuple[str, str], Sequence[Row]], settings: AuditSettings
    ) -> None:
        self._runs = list(runs)
        self._stretches: dict[tuple[str, str], list[Stretch]] = {}
        self._unnamed: dict[tuple[str, str], list[dict[str, int]]] = {}
        self._sources: dict[tuple[str, str], set[str]] = defaultdict(set)
        """By run: the names of its relay."""
        for key, rows in of_runs.items():
            parents = [row for row in rows if row["kind"] == "parent"]
            if parents:
                self._stretches[key] = list(stretches(parents))
                self._unnamed[key] = list(unnamed(parents, settings))
            self._sources[key] |= {row["service"] for row in rows if row["kind"] == "interest"}
        self._relays = {(domain, name) for (domain, _), names in self._sources.items() for name in names}
        self._branches = {(key[0], each.service) for key, found in self._stretches.items() for each in found}

    def place(self, domain: str, service: str) -> str:
        between = _OF_RELAY if (domain, service) in self._relays else _OF_OTHER
        return f"{domain}{between}{service}"

    def places(self) -> Iterator[dict[str, Any]]:
        for row in self._runs:
            domain, run, name = row["domain"], row["run"], row["name"]
            publishes = row["side"] in ("relay", "service", "writer") and (domain, name) in self._branches
            followed = {each.service for each in self._stretches.get((domain, run), ())}
            roles = [(_PUBLISHER, name)] if publishes else []
            roles += [(_CHILD, service) for service in sorted(followed)]
            roles += [
                (_SOURCE, each) for each in sorted(self._sources[domain, run]) if (domain, each) in self._branches
            ]
            at = self._unnamed.get((domain, run), [])
            common = {"domain": domain, "run": run, "parents": sorted(followed), "unnamed": at}
            for role, service in roles:
                yield {**common, "place": self.place(domain, service), "role": role, "branch": service}
            if row["side"] != "relay":
                role = _STRAY if (domain, run) in self._stretches else _ALL
                yield {**common, "place": domain, "role": role, "branch": ""}

    def stretches(self) -> Iterator[dict[str, Any]]:
        for (domain, run), found in self._stretches.items():
            for each in found:
                begin, end = each.begin, each.end
                yield {
                    "domain": self.place(domain, each.service),
                    "run": run,
                    "of_begin": begin["number"],
                    "of_named": each.named["wall"],
                    "of_end": FOREVER if end is None else end["number"],
                    "of_end_wall": None if end is None else end["wall"],
                    "of_end_mono": None if end is None else end["mono"],
                }


def _is(*roles: str) -> Column:
    return F.col("role").isin(*roles)


def _side() -> Column:
    publishes = _is(_SOURCE) | (_is(_PUBLISHER) & (F.col("side") == "relay"))
    return F.when(publishes, F.lit("service")).otherwise(F.col("side"))


def _placed_rows(rows: DataFrame, places: DataFrame) -> DataFrame:
    kind, service = F.col("kind"), F.col("service")
    data = kind == "data"
    receipt = data & (F.col("uuid") != "") & (F.col("sequence") > 0)
    number, wall = F.col("number"), F.col("wall")
    awaited = F.exists(
        "unnamed", lambda each: (each["begin"] < number) & (number < each["end"]) & (wall <= each["until"])
    )
    strange = receipt & ~F.array_contains("parents", service) & ~awaited
    kept = (
        _is(_ALL)
        | (_is(_STRAY) & strange)
        | (_is(_CHILD) & kind.isin("data", "drop", "sync_begin", "sync_end"))
        | (_is(_PUBLISHER) & data)
        | (_is(_SOURCE) & data & (F.col("outcome") == "applied"))
    )
    source = _is(_SOURCE)
    others = source | (_is(_CHILD) & data & ~(receipt & (service == F.col("branch"))))
    changed = {
        "domain": F.col("place"),
        "side": _side(),
        "uuid": F.when(others, F.lit("")).otherwise(F.col("uuid")),
        "sequence": F.when(others, F.lit(0).cast("bigint")).otherwise(F.col("sequence")),
        "outcome": F.when(source, F.lit("taken")).otherwise(F.col("outcome")),
        "cause": F.when(source, F.col("branch")).otherwise(F.col("cause")),
        "written": F.when(source, F.lit(0).cast("bigint")).otherwise(F.col("written")),
    }
    return rows.join(places, RUN).filter(kept).withColumns(changed).select(*rows.columns)


def _placed_events(events: DataFrame, places: DataFrame) -> DataFrame:
    kind = F.col("kind")
    of_child = kind.isin("interest", "drop", "sync_begin", "sync_end", "ask", "hello")
    kept = (
        _is(_ALL)
        | (_is(_STRAY) & (kind != "interest"))
        | (_is(_CHILD) & of_child)
        | (_is(_PUBLISHER) & (kind == "hello"))
    )
    changed = {"domain": F.col("place"), "side": _side()}
    return events.join(places, RUN).filter(kept).withColumns(changed).select(*events.columns)


def _placed_runs(runs: DataFrame, places: DataFrame) -> DataFrame:
    changed = {"domain": F.col("place"), "side": _side()}
    return runs.join(places, RUN).filter(~_is(_SOURCE)).withColumns(changed).select(*runs.columns)


def _continued(intervals: DataFrame, events: DataFrame, rows: DataFrame) -> DataFrame:
    """The intervals; before the syncs of a continued part stands one that covers nothing, at the part's base."""
    moved = intervals.filter(F.col("whole") < F.col("begin")).select(*RUN, F.col("topic").alias("of"), "whole", "begin")
    moved = settled(moved)
    if moved.isEmpty():
        return intervals
    kind, outcome = F.col("kind"), F.col("outcome")
    begun = events.filter((kind == "sync_begin") & (F.col("side") == "replica"))
    done = events.filter((kind == "sync_end") & outcome.isin("delta", "full"))
    applied = rows.filter((kind == "data") & (F.col("side") == "replica") & (outcome == "applied"))
    keys, proof = [*RUN, "topic", "begin"], F.struct("number", "position")
    full = F.max(F.when(outcome == "full", proof))
    joined = intervals
    for table, found in (
        (begun, [F.min("prev_position").alias("known")]),
        (done, [F.max(proof).alias("synced"), full.alias("read"), F.collect_list(proof).alias("ends")]),
        (applied, [F.max(proof).alias("passed")]),
    ):
        there = table.join(lookup(moved), RUN)
        before = (
            (F.col("number") > F.col("whole")) & (F.col("number") < F.col("begin")) & (F.col("topic") == F.col("of"))
        )
        joined = joined.join(lookup(settled(there.filter(before).groupBy(*keys).agg(*found))), keys, "left")
    base = F.struct(
        F.col("begin").alias("number"),
        _base_on_arrival().alias("position"),
        F.col("opened").alias("wall"),
        F.lit(None).cast("bigint").alias("began"),
        F.lit(FOREVER).cast("bigint").alias("since"),
        F.lit(False).alias("full"),
    )
    syncs = F.when(F.col("synced").isNotNull(), F.concat(F.array(base).cast(SYNCS), "syncs")).otherwise(F.col("syncs"))
    return joined.withColumn("syncs", syncs).select(*intervals.columns)


def _base_on_arrival() -> Column:
    """What a child had when it came to a parent: of a topic that it follows by itself, what it applied or read in full;
    the end of a delta does not raise that, unless records are lost before it.
    """
    proved, last = F.greatest("read", "passed"), F.greatest("synced", "passed")
    since = F.coalesce(proved["number"], F.col("whole"))
    lost = F.exists("gaps", lambda gap: (gap["hi"] > since) & (gap["lo"] < last["number"]))
    claims = F.filter("ends", lambda end: end["number"] > since)
    least = F.array_min(F.transform(claims, lambda end: end["position"]))
    held = F.least(F.coalesce(proved["position"], F.col("known"), F.lit(0)), least)
    return F.when((F.col("topic") == "") | lost, last["position"]).otherwise(held)


def read_on_arrival(part: Column, settled_at: Column, skew: Column, settings: AuditSettings) -> Column:
    """Whether the item was sent before the replica came to this parent, and the replica read it then."""
    p, opened = F.col("p"), part["opened"]
    read = (opened > p + 2 * settings.grace) | (settled_at <= opened + settings.bound)
    return F.coalesce(part["continued"] & (p < opened - skew) & read, F.lit(False))


def left_before(part: Column, skew: Column) -> Column:
    """Whether the replica had left this parent when the item was sent."""
    return F.coalesce((part["end"] < part["until"]) & (part["drop_wall"] - skew <= F.col("p")), F.lit(False))


def _domain() -> Column:
    return F.substring_index("domain", _SEPARATOR, 1)


def of_domains(delivery: DataFrame, strays: DataFrame, skews: DataFrame) -> tuple[DataFrame, DataFrame, DataFrame]:
    """The tables of all places, with their domains. A service's blame is the relay's in a relay's branch. ``skews``: of
    each pair of hosts one.
    """
    of_relay = F.col("domain").contains(_OF_RELAY) & (F.col("blame") == "service")
    blame = F.when(of_relay, F.lit("relay")).otherwise(F.col("blame"))
    pairs = skews.withColumn("domain", _domain()).groupBy(*HOSTS).agg(F.min("skew").alias("skew"))
    delivery = delivery.withColumns({"blame": blame, "domain": _domain()})
    return delivery, strays.withColumn("domain", _domain()), settled(pairs)
