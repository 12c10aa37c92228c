"""The records with the times of one clock for each group of hosts (audit-verdicts.md, "Clocks").

The clocks are computed by this process, from one row per run and one per pair of clocks.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import base_tables, drift, store_clock
from pubsub_lib.audit.rules.base_tables import HOSTS, RUN
from pubsub_lib.audit.rules.clocks import STEP, Clock, Clocks, Sample, Stretch, clocks_of, first_monos
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.spark.settled import hashed, lookup, settled, together

_SHIFTS: Final = pa.list_(pa.struct([("number", pa.int64()), ("since", pa.int64()), ("ahead", pa.int64())]))
_NAMES: Final = pa.list_(pa.struct([("until", pa.int64()), ("ahead", pa.int64())]))
_CLOCKS: Final = pa.list_(pa.struct([("number", pa.int64()), ("clock", pa.int64()), ("since", pa.int64())]))
_OF_RUN: Final = [("domain", pa.string()), ("run", pa.string())]
_PAIRS: Final = pa.schema([*((name, pa.string()) for name in HOSTS), ("ahead", pa.int64())])
_WALLS: Final = ("first_wall", "last_wall", "last_mark", "sent_wall")


class Overview(msgspec.Struct, frozen=True):
    """The rows of ``base_tables.overview`` by run: ``runs`` has one for each run."""

    runs: Sequence[Row]

    @property
    def sent(self) -> int:
        """The number of messages that were sent."""
        return sum(row["sent"] for row in self.runs)

    @property
    def messages(self) -> int:
        """The number of records of messages."""
        return sum(row["messages"] for row in self.runs)

    @property
    def relayed(self) -> frozenset[str]:
        """The domains in which any participant is a relay, or below one."""
        return frozenset(row["domain"] for row in self.runs if row["side"] == "relay" or row["moves"])

    @property
    def polled(self) -> frozenset[str]:
        """The domains with a polling replica and without records of a store."""
        stored = {row["domain"] for row in self.runs if row["side"] == "store"}
        return frozenset(row["domain"] for row in self.runs if row["polls"]) - stored

    @property
    def headless(self) -> frozenset[str]:
        """The domains without relays in which record number 1 of a replica's run is missing."""
        runs = (row for row in self.runs if row["side"] == "replica" and row["first_number"] > 1)
        return frozenset(row["domain"] for row in runs) - self.relayed

    @property
    def skips(self) -> bool:
        """Whether any replica recorded a message as old."""
        return any(row["skips"] for row in self.runs)

    @property
    def holds(self) -> bool:
        """Whether any replica recorded what it holds."""
        return any(row["holds"] for row in self.runs)


def by_run(overview: DataFrame) -> Overview:
    """Collect the overview by run. Blocks for a small job."""
    recorded = F.when(F.col("topic").isNotNull(), F.col("recorded"))
    lowest = ("first_wall", "first_mono", "first_number", "least_offset")
    found = overview.groupBy(*RUN, "side", "name", "host").agg(
        *(F.min(name).alias(name) for name in lowest),
        *(F.max(name).alias(name) for name in (
            "last_wall", "last_mono", "greatest_offset", "holds", "moves", "polls", "skips",
        )),
        F.coalesce(F.sum(recorded), F.lit(0)).alias("messages"),
        F.sum("sent").alias("sent"),
    )
    return Overview(found.collect())


class Corrected(msgspec.Struct, frozen=True):
    """The tables with corrected times. ``between``: per domain, replica's and publisher's host by how much the clock of
    the first was ahead of the other's, null where they are not compared; None: every domain has one host.
    """

    rows: DataFrame
    events: DataFrame
    overview: DataFrame
    between: DataFrame | None


def corrected(
    rows: DataFrame, events: DataFrame, overview: DataFrame, known: Overview, settings: AuditSettings
) -> Corrected:
    """Compute the clocks and correct the times. ``events``, ``overview``: of these rows. Blocks for small jobs when the
    journals are of several hosts, or a clock stepped.
    """
    stretches = _stretches(rows, known)
    clocks = {domain: clocks_of(of_domain) for domain, of_domain in stretches.items()}
    if all(len(set(of_domain.values())) < 2 for of_domain in clocks.values()):
        return Corrected(rows, events, overview, None)
    numbers = {domain: sorted(set(of_domain.values())) for domain, of_domain in clocks.items()}
    compared = _compared(events, clocks, numbers)
    samples = _samples(compared, numbers, settings)
    found = {domain: Clocks(of_domain, samples[domain]) for domain, of_domain in clocks.items()}
    drift.correct(compared, found, numbers, settings)
    between = _between(rows, known, found)
    shifts = {(domain, run): each for domain, one in found.items() for run, each in one.shifts().items()}
    shifts |= store_clock.shifts(events, clocks, found)
    shifts = {key: each for key, each in shifts.items() if any(ahead for *_, ahead in each)}
    if not shifts:
        return Corrected(rows, events, overview, between)
    spark = rows.sparkSession
    of_runs = small(
        spark,
        [
            {
                "domain": domain,
                "run": run,
                "shifts": [{"number": number, "since": since, "ahead": ahead} for number, since, ahead in each],
            }
            for (domain, run), each in shifts.items()
        ],
        pa.schema([*_OF_RUN, ("shifts", _SHIFTS)]),
    )
    right = _with_written(_with_walls(rows, of_runs), _names(rows, found))
    if any(len(each) > 1 for each in shifts.values()):
        whole = settled(base_tables.overview(right))
    else:
        joined = overview.join(lookup(of_runs), RUN, "left")
        ahead = F.coalesce(F.get("shifts", F.lit(0))["ahead"], F.lit(0))
        joined = joined.withColumns({name: F.col(name) - ahead for name in _WALLS})
        whole = settled(joined.select(*overview.columns))
    return Corrected(right, settled(_with_walls(events, of_runs)), whole, between)


def _with_walls(table: DataFrame, of_runs: DataFrame) -> DataFrame:
    joined = table.join(lookup(of_runs), RUN, "left")
    before = F.filter(
        "shifts",
        lambda each: (each["number"] <= F.col("number")) & (each["since"].isNull() | (each["since"] <= F.col("mono"))),
    )
    ahead = F.coalesce(F.try_element_at(before, F.lit(-1))["ahead"], F.lit(0))
    return joined.withColumn("wall", F.col("wall") - ahead).select(*table.columns)


def _names(rows: DataFrame, found: dict[str, Clocks]) -> DataFrame:
    named = [
        {"domain": domain, "origin": name, "clocks": [{"until": until, "ahead": ahead} for until, ahead in each]}
        for domain, one in found.items()
        for name, each in one.of_names().items()
        if any(ahead for _, ahead in each)
    ]
    return small(
        rows.sparkSession,
        named,
        pa.schema([("domain", pa.string()), ("origin", pa.string()), ("clocks", _NAMES)]),
    )


def _with_written(table: DataFrame, names: DataFrame) -> DataFrame:
    origin = F.when(F.col("cause") != "", F.col("cause")).otherwise(F.col("service"))
    joined = table.withColumn("origin", origin).join(lookup(names), ["domain", "origin"], "left")
    later = F.filter("clocks", lambda each: each["until"] >= F.col("written"))
    ahead = F.coalesce(F.get(later, F.lit(0)), F.try_element_at("clocks", F.lit(-1)))["ahead"]
    written = F.when(F.col("written") > 0, F.col("written") - F.coalesce(ahead, F.lit(0)))
    return joined.withColumn("written", F.coalesce(written, F.col("written"))).select(*table.columns)


def _stretches(rows: DataFrame, known: Overview) -> dict[str, list[Stretch]]:
    found: dict[str, list[Stretch]] = defaultdict(list)
    stepped = []
    for row in known.runs:
        if row["greatest_offset"] - row["least_offset"] > STEP:
            stepped.append({"domain": row["domain"], "run": row["run"]})
            continue
        names = ("first_number", "least_offset", "first_wall", "last_wall", "first_mono", "last_mono")
        about = [row[name] for name in names]
        found[row["domain"]].append(Stretch(row["run"], row["side"], row["name"], row["host"], *about))
    if stepped:
        there = small(rows.sparkSession, stepped, pa.schema(_OF_RUN))
        for row in _of_stepped(rows.join(lookup(there), RUN, "left_semi")).collect():
            about = [row[name] for name in ("number", "offset", "low", "high", "since", "last_mono")]
            found[row["domain"]].append(Stretch(row["run"], row["side"], row["name"], row["host"], *about))
    return found


def _of_stepped(rows: DataFrame) -> DataFrame:
    in_order = Window.partitionBy(*RUN).orderBy("number")
    steps = F.coalesce(F.abs(F.col("offset") - F.lag("offset").over(in_order)) > STEP, F.lit(False))
    narrow = rows.select(
        *RUN, "side", "name", "host", "number", "wall", "mono", (F.col("wall") - F.col("mono")).alias("offset")
    )
    numbered = narrow.withColumn("steps", steps).withColumn("turn", F.sum(F.col("steps").cast("int")).over(in_order))
    return numbered.groupBy(*RUN, "side", "name", "host", "turn").agg(
        F.min("number").alias("number"),
        F.min("offset").alias("offset"),
        F.min("wall").alias("low"),
        F.max("wall").alias("high"),
        F.min("mono").alias("since"),
        F.max("mono").alias("last_mono"),
    )


def _compared(events: DataFrame, clocks: dict[str, dict[Stretch, Clock]], numbers: dict[str, list[Clock]]) -> DataFrame:
    """All hello requests that compare the clocks of two hosts. Not computed."""
    asks = events.filter(F.col("kind").isin("ask", "hello") & (F.col("peer") != "") & (F.col("side") != "store"))
    asks = together(asks.join(lookup(_clock_table(events, clocks, numbers)), RUN))
    before = F.filter("clocks", lambda each: each["number"] <= F.col("number"))
    asks = asks.withColumn("at", F.try_element_at(before, F.lit(-1)))
    asks = asks.withColumns({"clock": F.col("at.clock"), "age": F.col("mono") - F.col("at.since")})
    replica = F.col("side") == "replica"
    requests = asks.filter(F.col("kind") == "ask").select(
        *RUN, "peer", "clock", F.col("wall").alias("a"), F.col("number").alias("ask_number")
    )
    received = asks.filter((F.col("kind") == "hello") & replica).select(
        *RUN, "peer", "clock", "uuid", "host", "number", "age", "mono", F.col("wall").alias("b")
    )
    replies = asks.filter((F.col("kind") == "hello") & ~replica).select(
        "domain", "peer", "uuid", F.col("host").alias("reply_host"), F.col("clock").alias("reply_clock"),
        F.col("run").alias("reply_run"), F.col("number").alias("reply_number"), F.col("age").alias("reply_age"),
        F.col("mono").alias("reply_mono"), F.col("wall").alias("s"),
    )  # fmt: skip
    there = together(requests.join(hashed(received), [*RUN, "peer", "clock"]))
    every = there.join(hashed(replies), ["domain", "peer", "uuid"])
    ahead = F.shiftright(F.col("a") + F.col("b"), 1) - F.col("s")
    trip = F.col("b") - F.col("a")
    return every.filter(F.col("host") != F.col("reply_host")).withColumns({"ahead": ahead, "trip": trip})


def _samples(compared: DataFrame, numbers: dict[str, list[Clock]], settings: AuditSettings) -> dict[str, list[Sample]]:
    """Per domain the first sample of each pair of clocks, of those that count."""
    age = F.least("age", "reply_age")
    counted = compared.filter(age <= settings.reach)
    first = F.struct(age.alias("age"), "run", "number", "reply_run", "reply_number", "ask_number", "ahead")
    found: dict[str, list[Sample]] = defaultdict(list)
    of_pairs = counted.groupBy("domain", "clock", "reply_clock").agg(F.min(first).alias("first"))
    for row in of_pairs.select("domain", "clock", "reply_clock", "first.*").collect():
        one, two = numbers[row["domain"]][row["clock"]], numbers[row["domain"]][row["reply_clock"]]
        found[row["domain"]].append(
            Sample(
                row["age"], row["run"], row["number"], row["reply_run"], row["reply_number"], row["ask_number"],
                one, two, row["ahead"],
            )
        )  # fmt: skip
    return found


def _clock_table(
    events: DataFrame, clocks: dict[str, dict[Stretch, Clock]], numbers: dict[str, list[Clock]]
) -> DataFrame:
    """Per run its stretches, in order: the first record of each, its clock, and the begin of that clock."""
    of_runs: dict[tuple[str, str], list[dict[str, int]]] = defaultdict(list)
    for domain, of_domain in clocks.items():
        since = first_monos(of_domain)
        places = {clock: number for number, clock in enumerate(numbers[domain])}
        for stretch, clock in sorted(of_domain.items(), key=lambda each: each[0].number):
            if stretch.takes_part:
                each = {"number": stretch.number, "clock": places[clock], "since": since[clock]}
                of_runs[domain, stretch.run].append(each)
    rows = [{"domain": domain, "run": run, "clocks": each} for (domain, run), each in of_runs.items()]
    return small(events.sparkSession, rows, pa.schema([*_OF_RUN, ("clocks", _CLOCKS)]))


def _between(rows: DataFrame, known: Overview, found: dict[str, Clocks]) -> DataFrame:
    pairs = []
    for domain, one in sorted(found.items()):
        of_domain = [row for row in known.runs if row["domain"] == domain]
        last = one.last_of_hosts()
        publishers = sorted({row["host"] for row in of_domain if row["sent"]})
        for host in sorted({row["host"] for row in of_domain if row["side"] == "replica"}):
            for other in publishers:
                if host != other:
                    mine, theirs = last[host], last[other]
                    same = one.group[mine] == one.group[theirs]
                    ahead = one.pieces(mine)[-1][1] - one.pieces(theirs)[-1][1] if same else None
                    pairs.append(dict(zip((*HOSTS, "ahead"), (domain, host, other, ahead), strict=True)))
    return small(rows.sparkSession, pairs, _PAIRS)


def total_skews(measured: DataFrame, between: DataFrame | None) -> DataFrame:
    """The skew of each pair of hosts: what was corrected, and what was measured after that. Null: not known."""
    if between is None:
        return measured
    joined = between.join(hashed(measured), HOSTS, "full")
    known: Column = F.coalesce(F.col("ahead") + F.coalesce("skew", F.lit(0)), F.col("skew"))
    return joined.select(*HOSTS, known.alias("skew"))
